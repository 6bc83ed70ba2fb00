"""`turn()`: a loop of one's own, guarded by one call."""

import asyncio
import gc
import json
import logging
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from pydantic import BaseModel, SecretStr

import otel_loopguard
from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    Refusal,
    control,
    resilience,
    turn,
)
from tests.agents import Ended, provider_with
from tests.programs import printed
from tests.tables import rows


class House:
    """A provider with a guard of its own, and what was exported."""

    def __init__(self, **settings: Any) -> None:
        self.ended = Ended()
        self.guard = LoopGuard(otel_loopguard.Settings(**settings))
        self.provider = provider_with(LoopGuardSpanProcessor(self.guard), self.ended)
        self.key = uuid.uuid4().hex
        self.ran = 0

    def turn(self, session: str | None = None, **options: Any) -> turn:
        return turn(session or self.key, tracer_provider=self.provider, **options)

    def search(self, query: str = "x") -> str:
        """A tool that finds nothing."""
        self.ran += 1
        return f"No results for {query}."

    async def search_later(self, query: str = "x") -> str:
        """As `search`."""
        await asyncio.sleep(0)
        return self.search(query)

    def stuck(self, times: int = 30) -> LoopGuardAbort:
        """A model that asks for the same, whatever it is told."""
        with pytest.raises(LoopGuardAbort) as stop, self.turn() as now:
            for _ in range(times):
                now.hint()
                now.tool("search", {"query": "x"}, self.search)
        return stop.value


@pytest.fixture
def house() -> House:
    """One for each test."""
    return House()


def test_a_turn_that_no_provider_watches_is_guarded_beside_guards_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the guard of the process, and nothing is said to be unseen."""
    others = House(), House()
    key = uuid.uuid4().hex
    with pytest.raises(LoopGuardAbort), turn(key) as now:
        for _ in range(30):
            now.tool("search", {"query": "x"}, others[0].search)
    assert not [each for each in caplog.records if hasattr(each, "blind")]


def _said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_loop_is_hinted_refused_and_stopped(house: House) -> None:
    """Nothing runs after the deny; the stop has the results so far."""
    told: list[str] = []
    results: list[str] = []
    with pytest.raises(LoopGuardAbort) as stop, house.turn() as now:
        for _ in range(30):
            said = now.hint()
            told += [] if said is None else [said]
            results.append(now.tool("search", '{"query": "x"}', house.search))
    assert house.ran == 4
    assert isinstance(results[4], Refusal)
    assert not isinstance(results[3], Refusal)
    # A refusal goes where instrumentations may write it, so it quotes nothing.
    assert results[4] == told[1].replace(' The last answer: "No results for x."', "")
    assert stop.value.parts == ("No results for x.",) * 4
    assert stop.value.session == house.key


def test_its_spans_say_what_happened_without_content(house: House) -> None:
    """The turn is an agent's run with its calls, a refused one failed; content by option."""
    house.stuck()
    *calls, agent = house.ended.spans
    assert agent.name == "invoke_agent agent"
    assert _said(agent)["gen_ai.conversation.id"] == house.key
    assert {span.name for span in calls} == {"execute_tool search"}
    assert {span.parent and span.parent.span_id for span in calls} == {agent.context.span_id}
    assert calls[4].status.status_code is StatusCode.ERROR
    assert _said(calls[4])["error.type"] == "loopguard_deny"
    assert not any(name.endswith(("arguments", "result")) for name in _said(calls[0]))
    with house.turn(content=True) as now:
        now.tool("search", {"query": "x"}, house.search)
        with pytest.raises(ZeroDivisionError):
            now.tool("divide", {"by": 0}, lambda by: 1 / by)
    well, failed = (_said(span)["gen_ai.tool.call.result"] for span in house.ended.spans[-3:-1])
    assert well == "No results for x."
    assert failed == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("within", ["", "session", "span", "session and span"])
def test_every_turn_of_a_session_may_ask_the_same(house: House, within: str) -> None:
    """In traces of their own, or in one, as in a test harness or a server's request."""
    key = uuid.uuid4().hex
    tracer = house.provider.get_tracer("harness")
    with ExitStack() as around:
        if "session" in within:
            around.enter_context(otel_loopguard.session(key))
        if "span" in within:
            around.enter_context(tracer.start_as_current_span("chat"))
        for _ in range(12):
            named = None if "session" in within else key
            with turn(named, tracer_provider=house.provider) as now:
                assert (now.session, now.hint()) == (key, None)
                assert now.tool("search", {"query": "x"}, house.search) == "No results for x."
    assert house.ran == 12


def test_what_the_policy_stopped_goes_on_in_the_next_turn(house: House) -> None:
    """And what a person stopped does not."""
    house.stuck()
    with house.turn() as now:
        assert now.control.action == "allow"
        assert now.tool("search", {"query": "x"}, house.search) == "No results for x."
    control.abort(house.key, by="ada")
    with house.turn() as now, pytest.raises(LoopGuardAbort):
        now.tool("search", {"query": "x"}, house.search)
    assert house.ran == 5


def test_a_turn_inside_of_a_turn_is_a_sub_agent(house: House) -> None:
    """It is in the same session and lifts nothing; one of another session is a turn there."""
    other = uuid.uuid4().hex
    with house.turn(agent="boss") as boss:
        boss.tool("search", {"query": "x"}, house.search)
        control.abort(house.key)
        with turn(agent="helper", tracer_provider=house.provider) as helper:
            assert helper.session == house.key
            with pytest.raises(LoopGuardAbort):
                helper.tool("search", {"query": "y"}, house.search)
        with house.turn(other) as another:
            assert another.tool("search", {"query": "y"}, house.search) == "No results for y."
        assert control.current().session == house.key
    names = [span.name for span in house.ended.named("invoke_agent")]
    assert names == ["invoke_agent helper", "invoke_agent agent", "invoke_agent boss"]


def test_another_agent_makes_a_call_that_is_refused_to_one(house: House) -> None:
    """It is neither refused nor ends the session; the first goes on to be refused."""
    made: list[str] = []

    def make(who: turn, name: str, times: int) -> None:
        for _ in range(times):
            who.hint()
            answer = who.tool("search", {"query": "x"}, house.search)
            made.append(name + "!" * isinstance(answer, Refusal))

    with house.turn(agent="lead") as lead:
        for name, times in (("a", 6), ("b", 2), ("c", 2), ("a", 1)):
            with turn(agent=name, tracer_provider=house.provider) as helper:
                make(helper, name, times)
        make(lead, "lead", 2)
    assert " ".join(made) == "a a a a a! a! b b c c a! lead lead"


def test_a_tool_that_raises_is_a_failed_call_and_equal_errors_are_a_loop(house: House) -> None:
    """The exception is the caller's; what it says counts as the answer."""

    def broken(query: str) -> str:
        raise KeyError(f"no column named {query}")

    told: list[str] = []
    with pytest.raises(LoopGuardAbort), house.turn() as now:
        for _ in range(30):
            told += [now.hint() or ""]
            try:
                now.tool("query", {"query": "x"}, broken)
            except KeyError:
                continue
    assert any(told)
    (first, *_) = house.ended.named("execute_tool")
    assert first.status.status_code is StatusCode.ERROR
    assert _said(first)["error.type"] == "KeyError"


class Query(BaseModel):
    """What a typed tool takes, and what it answers with."""

    text: str
    key: SecretStr = SecretStr("k3y")


class Plain:
    """An object of no known kind."""

    def __init__(self, text: str) -> None:
        self.text = text


WORDS = "refund invoice delivery warranty address voucher return payment news login visa tax"
TYPED: list[Callable[[str], object]] = [
    Path, Plain, lambda x: Query(text=x), lambda x: [Query(text=x)],
    lambda x: {"amount": Decimal(len(x)), "by": Plain(x)},
]  # fmt: skip


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("typed", TYPED)
def test_typed_arguments_are_what_is_in_them(
    house: House, typed: Callable[[str], object], content: bool
) -> None:
    """Different ones are different calls, and the same made anew is the same call, and refused."""
    words = WORDS.split()
    with house.turn(content=content) as now:
        for word in words:
            now.hint()
            now.tool("search", {"query": typed(word)}, lambda query: "No results.")
    assert house.ended.named("execute_tool")[-1].status.status_code is StatusCode.UNSET
    # Another one at the same address, perhaps, is another one.
    with house.turn("again", content=content) as now:
        for _ in range(4):
            now.hint()
            now.tool("search", {"query": typed("refund")}, lambda query: "No results.")
        assert control.refused("search", {"query": typed("refund")}) is not None
        assert control.refused("search", {"query": typed("invoice")}) is None


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("typed", TYPED)
def test_typed_results_are_what_is_in_them(
    house: House, typed: Callable[[str], object], content: bool
) -> None:
    """Pages of other rows are news; the same rows, made anew, are not."""
    with house.turn(content=content) as now:
        for number in range(20):
            rows = [typed(f"row {number * 5 + row} {row * 77} of a table") for row in range(5)]
            assert now.tool("next_page", None, lambda rows=rows: {"rows": rows}) == {"rows": rows}
            assert now.hint() is None
    with pytest.raises(LoopGuardAbort), house.turn("again", content=content) as now:
        for _ in range(30):
            now.hint()
            now.tool("next_page", None, lambda: {"rows": [typed("row of a table")] * 5})


@pytest.mark.parametrize("content", [False, True])
def test_that_a_tool_gives_nothing_is_its_answer(content: bool) -> None:
    """It was seen; it says little, so that a tool that only does something is not stopped."""
    steps: list[Any] = []
    guard = LoopGuard(on_step=lambda _key, _number, step: steps.append(step))
    provider = provider_with(LoopGuardSpanProcessor(guard))
    with turn("x", tracer_provider=provider, content=content) as now:
        for _ in range(40):
            now.hint()
            assert now.tool("press", {"key": "Down"}, lambda key: None) is None
    assert guard.report("x") is not None
    calls = [step for step in steps if step.name == "press"]
    assert [step.lacks for step in calls] == [()] * 40
    assert {step.outcome for step in calls} == {"null"}


@pytest.mark.parametrize(("args", "placed", "named"), rows(__file__, "arguments"))
def test_arguments_are_given_as_models_and_programs_write_them(
    house: House, args: str, placed: str, named: str
) -> None:
    """By name, in order, or as the one there is; what is no JSON is a failed call."""

    def tool(*values: object, **named: object) -> object:
        return [*values], named

    with house.turn() as now:
        assert now.tool("any", json.loads(args), tool) == (json.loads(placed), json.loads(named))
        with pytest.raises(ValueError, match="not JSON"):
            now.tool("search", '{"query": ', house.search)
        with pytest.raises(ValueError, match="not JSON"):
            now.tool("search", '{"query": ' * 99_999, house.search)
    assert house.ended.spans[1].status.status_code is StatusCode.ERROR


class Unspeakable(Exception):  # noqa: N818  # named after what it does
    """Says nothing of itself; as a value, it equals neither this nor that, as an array does."""

    def __str__(self) -> str:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize(
    "value",
    [2**70, {"n": -(2**70)}, {"q": "\ud800"}, {("a", 1): 2}, CIRCLE, Unspeakable()],
    ids=["large", "large inside", "surrogate", "key of two parts", "circle", "unspeakable"],
)
def test_whatever_a_tool_takes_and_gives_is_the_caller_s(
    house: House, value: object, content: bool
) -> None:
    """Also where it cannot be written as JSON, or says nothing of itself; so is what it raises."""

    def fails(value: object) -> None:
        raise error

    error = Unspeakable()
    with house.turn(content=content) as now:
        assert now.tool("echo", [value], lambda given: given) is value
        with pytest.raises(Unspeakable) as raised:
            now.tool("fails", [value], fails)
        assert raised.value is error
        if not isinstance(value, dict | list):
            assert now.tool("echo", value, lambda given: given) is value
    assert len(house.ended.named("execute_tool")) >= 2


def test_half_a_character_in_the_name_of_a_tool_fails_no_exporter(house: House) -> None:
    """A model wrote it; the name of a span is written strictly, with all of its batch."""
    with house.turn() as now:
        assert now.tool("search\ud83d", {}, lambda: "found") == "found"
    assert all(span.name.encode() for span in house.ended.spans)


def test_a_generator_is_a_call_until_it_ends(house: House) -> None:
    """Its items are its answer; who stops asking for more says nothing of it."""

    def words(query: str) -> Iterator[str]:
        yield "no "
        yield f"results for {query}"

    ran = 0
    with pytest.raises(LoopGuardAbort), house.turn() as now:
        for _ in range(30):
            now.hint()
            found = now.tool("search", {"query": "x"}, words)
            ran += not isinstance(found, Refusal)
            assert isinstance(found, Refusal) or list(found) == ["no ", "results for x"]
    assert ran == 4
    with house.turn() as now:
        next(iter(now.tool("search", {"query": "y"}, words)))
        gc.collect()
    assert house.ended.spans[-2].status.status_code is StatusCode.UNSET


def test_asynchronous_tools_are_awaited_in_an_asynchronous_turn(house: House) -> None:
    """Coroutine functions, plain functions and generators."""

    async def words() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    async def run() -> None:
        async with house.turn() as now:
            assert await now.atool("later", {"query": "x"}, house.search_later)
            assert await now.atool("now", {"query": "x"}, house.search)
            assert now.tool("now", {"query": "y"}, house.search)
            stream = await now.atool("words", None, words)
            assert not isinstance(stream, Refusal)
            assert [word async for word in stream] == ["a", "b"]
            with pytest.raises(TypeError, match="atool"):
                now.tool("later", {"query": "x"}, house.search_later)
            for _ in range(30):
                await now.ahint()
                await now.atool("later", {"query": "z"}, house.search_later)

    with pytest.raises(LoopGuardAbort):
        asyncio.run(run())
    assert house.ran == 3 + 4


def test_concurrent_asynchronous_turns_do_not_meet(house: House) -> None:
    """Each task is in the session that it named, and only the stuck one is stopped."""

    async def run(key: str, *, stuck: bool) -> str:
        async with house.turn(key) as now:
            for number in range(12):
                await now.ahint()
                args = {"query": "x" if stuck else str(number)}
                await now.atool("search", args, house.search_later)
        return "done"

    async def all_of_them() -> list[Any]:
        runs = (run(f"{house.key}-{number}", stuck=number == 3) for number in range(8))
        return await asyncio.gather(*runs, return_exceptions=True)

    results = asyncio.run(all_of_them())
    assert [number for number, one in enumerate(results) if one != "done"] == [3]
    assert isinstance(results[3], LoopGuardAbort)


def test_calls_from_bare_threads_belong_to_the_turn(house: House) -> None:
    """A pool carries no context along; the turn knows where it is."""
    with house.turn() as now, ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(now.tool, "search", {"query": str(number)}, house.search)
            for number in range(8)
        ]
        assert all(one.result().startswith("No results") for one in asked)
        control.abort(house.key)
        with pytest.raises(LoopGuardAbort):
            pool.submit(now.hint).result()
    agent = house.ended.spans[-1]
    parents = {span.parent and span.parent.span_id for span in house.ended.spans[:-1]}
    assert parents == {agent.context.span_id}


def test_a_turn_in_a_generator_may_end_in_another_context(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """As a web server drives the body of an answer, each step in a thread of its own."""

    def body() -> Iterator[str]:
        with house.turn() as now:
            for number in range(3):
                yield now.tool("search", {"query": str(number)}, house.search)

    steps = body()
    got: list[str | None] = []
    with caplog.at_level(logging.ERROR):
        for _ in range(4):
            thread = threading.Thread(target=lambda: got.append(next(steps, None)))
            thread.start()
            thread.join()
    assert got == ["No results for 0.", "No results for 1.", "No results for 2.", None]
    assert not caplog.records
    assert {span.context.trace_id for span in house.ended.spans} == {
        house.ended.spans[0].context.trace_id
    }
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_paused_turn_waits_and_has_its_limit(house: House) -> None:
    """Before the model and before a tool."""
    with house.turn(limit_s=0.05) as now:
        control.pause(house.key)
        with pytest.raises(LoopGuardPaused):
            now.hint()
        with pytest.raises(LoopGuardPaused):
            now.tool("search", {"query": "x"}, house.search)
        control.resume(house.key, guidance="look elsewhere")
        assert now.hint() == "look elsewhere"
        assert now.hint() is None
    assert house.ran == 0


def test_partial_results_of_the_loop_come_with_the_stop(house: House) -> None:
    """Beside the results of tools, in their order; what else a loop raises is on its span."""
    with pytest.raises(LoopGuardAbort) as stop, house.turn() as now:
        now.partial("a plan")
        now.tool("search", {"query": "x"}, house.search)
        control.abort(house.key)
        now.hint()
    assert stop.value.parts == ("a plan", "No results for x.")
    with pytest.raises(ZeroDivisionError), house.turn():
        raise ZeroDivisionError
    assert _said(house.ended.spans[-1])["error.type"] == "ZeroDivisionError"
    assert resilience.parts(house.key) == stop.value.parts


def test_a_turn_that_ends_well_leaves_no_results_behind(house: House) -> None:
    """Neither its own nor those of the turns before; one inside of it leaves them there."""
    with house.turn() as now:
        with house.turn() as inner:
            inner.tool("search", {"query": "x"}, house.search)
        now.tool("search", {"query": "y"}, house.search)
        assert len(resilience.parts(house.key)) == 2
    assert resilience.parts(house.key) == ()


def test_what_aliases_of_yaml_make_of_a_few_bytes_is_not_written_out(house: House) -> None:
    """One list in a million places: it is equal to nothing, and the span does not have it."""
    doc: list[object] = ["text"]
    for _ in range(20):
        doc = [doc, doc]
    with house.turn(content=True) as now:
        for _ in range(4):
            assert now.tool("read_yaml", {"path": "x"}, lambda path: doc) is doc
        assert now.hint() is None
    assert all(len(str(_said(one))) < 1_000 for one in house.ended.spans)


def test_misuse_is_told() -> None:
    """No begin, or two of them; without a key each turn has its own session."""
    turns = [turn(tracer_provider=provider_with()) for _ in range(3)]
    keys = set[str]()
    for each in turns:
        with each as now:
            keys.add(now.session)
    assert len(keys) == 3
    with pytest.raises(RuntimeError, match="not begun"):
        turn().tool("search", None, str)
    once = turn(tracer_provider=provider_with())
    with once, pytest.raises(RuntimeError, match="begins once"):
        once.__enter__()


def test_a_trace_that_is_not_sampled_is_guarded_all_the_same() -> None:
    """The guard alone sees the spans then."""
    ended = Ended()
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider.add_span_processor(ended)
    ran: list[str] = []
    with pytest.raises(LoopGuardAbort), turn(uuid.uuid4().hex, tracer_provider=provider) as now:
        for _ in range(30):
            now.tool("search", {"query": "x"}, lambda query: ran.append(query) or "No results.")
    assert len(ran) == 4
    assert not ended.spans


_ALONE = """
from otel_loopguard import LoopGuardAbort, turn
{before}
ran = 0

def search(query):
    global ran
    ran += 1
    return "No results."

try:
    with turn("chat-1") as now:
        for _ in range(30):
            now.hint()
            now.tool("search", {{"query": "x"}}, search)
except LoopGuardAbort as stop:
    print(ran, "stopped", stop.session)
"""

_UNSET = """
from opentelemetry.sdk.trace import TracerProvider
from otel_loopguard import LoopGuardSpanProcessor
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
"""
_SET = f"""
{_UNSET}
from opentelemetry import trace
trace.set_tracer_provider(provider)
"""

_LOGFIRE = """
import logfire
from otel_loopguard._util.errors import raise_faults
logfire.configure(send_to_logfire=False, console=False)
raise_faults(True)
"""


@pytest.mark.parametrize(
    "before",
    ["", "import otel_loopguard; otel_loopguard.setup()", _UNSET, _LOGFIRE],
    ids=["nothing", "setup", "a provider that is not the global one", "logfire"],
)
def test_it_works_in_a_process_without_anything_set_up(before: str) -> None:
    """No provider, no processor; or a provider that nobody made the global one."""
    assert printed(_ALONE.format(before=before)).startswith("4 stopped chat-1\n")


_INNER = _ALONE.replace("now.tool(", 'with turn(agent="inner") as inner: inner.tool(')


@pytest.mark.parametrize("before", ["", _UNSET], ids=["nothing", "a provider not the global one"])
def test_a_sub_agent_is_guarded_in_a_process_without_anything_set_up(before: str) -> None:
    """Where no span is made, what stands for the inner turn's has the id of the outer one's."""
    ran, *told = printed(_INNER.format(before=before)).split()[:3]
    assert int(ran) < 30
    assert told == ["stopped", "chat-1"]


_ADAPTED = """
from otel_loopguard import LoopGuardAbort, turn
from otel_loopguard.integrations._adapter import Adapter

def run(session):
    adapter, ran = Adapter("test"), 0
    try:
        for _ in range(30):
            adapter.before_model(session)
            call = adapter.tool_call("search", {"query": "x"}, session=session)
            if call.refusal() is None:
                with call:
                    ran += 1
                    call.set_result("No results.")
    except LoopGuardAbort as stop:
        print(ran, stop.session)

with turn("chat-1"):
    run("inside")
run("after")
"""


def test_an_adapter_within_a_turn_and_after_it_is_guarded_without_anything_set_up() -> None:
    """Each counts once; that a turn has begun keeps no call of an adapter from the guard."""
    assert printed(_ADAPTED).startswith("4 chat-1\n4 after\n")


@pytest.mark.parametrize("switch", ["OTEL_SDK_DISABLED=true", "LOOPGUARD_ENABLED=false"])
@pytest.mark.parametrize("before", ["", _SET], ids=["no processor", "a processor"])
def test_a_guard_that_is_off_stays_off_and_a_turn_says_so_once(before: str, switch: str) -> None:
    name, _, value = switch.partition("=")
    told = printed(_ALONE.format(before=before) + "\nprint(ran, 'made')", **{name: value})
    assert told.count("nothing is guarded, as") == told.count("otel-loopguard:") == 1
    assert "30 made" in told
