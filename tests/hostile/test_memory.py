"""Nothing grows with the length of a run or the number of runs, and what is forgotten is freed."""

import gc
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

import pytest
from opentelemetry.trace import Tracer

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, resilience
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.dialects import RecordedSpan
from otel_loopguard.execution import admit
from tests.agents import agent, provider_with, tool_call
from tests.calls import EPOCH, SECOND, call
from tests.hostile.rig import MARK, TOOL, sizes
from tests.stores.servers import wait_for
from tests.tables import rows

MOST = 500
ROOM = 300
"""Flags that escalations still hold open, boards of sessions that come, and the like."""
ABOVE = 3
"""Spans that an open span keeps once they ended: its parent, its run, and the topmost run."""
_left: list[object] = []


def trace(tracer: Tracer, number: int) -> None:
    tool_call(tracer, args=f'{{"q": {number}}}')


def conversation(tracer: Tracer, number: int) -> None:
    with agent(tracer, gen_ai__conversation__id=f"c{number}"):
        tool_call(tracer, args=f'{{"q": {number}}}')


def named(tracer: Tracer, number: int) -> None:
    """A session that the application names, with a plan, results and what it is asked."""
    with otel_loopguard.session(f"n{number}", [{"id": "1"}]), agent(tracer):
        tool_call(tracer, args=f'{{"q": {number}}}')
        resilience.partial(f"part {number}")
        admit("search", {"q": number}, session=f"n{number}")


def loop(tracer: Tracer, number: int) -> None:
    with otel_loopguard.session(f"l{number}"), agent(tracer):
        for _ in range(6):
            tool_call(tracer)
    control.escalate("it is stuck", session=f"l{number}")


def aborted(tracer: Tracer, number: int) -> None:
    with otel_loopguard.session(f"a{number}"):
        tool_call(tracer, args=f'{{"q": {number}}}')
    assert control.abort(f"a{number}", by="ada")


def unended(tracer: Tracer, number: int) -> None:
    with agent(tracer):
        _left[:] = [*_left[-9:], tracer.start_span("execute_tool search", attributes=TOOL)]
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": f"u{number}"}
    _left.append(tracer.start_span("invoke_agent a", attributes=attributes))


# Half of those that are named fill the tables of the 4,096 newest admissions.
FEEDS = {trace: 20_000, conversation: 3000, named: 9000, loop: 1200, aborted: 2000, unended: 2000}
COUNTED = {"Session", "Flag", "SessionStats", "Progress", "Milestones", "ActiveSpan"}
OF_A_CASE = 12
"""Entries of what people are asked about one session."""


def alive() -> Counter[str]:
    """How many objects there are in the process of the types that are counted."""
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    ours = (kind for kind in kinds if str(kind.__module__).startswith("otel_loopguard"))
    return Counter(kind.__name__ for kind in ours if kind.__name__ in COUNTED)


@pytest.mark.rare
@pytest.mark.parametrize(("feed", "count"), FEEDS.items())
def test_of_any_number_of_sessions_five_hundred_are_left(
    feed: Callable[[Tracer, int], None], count: int
) -> None:
    """Of sessions, flags, records and open spans there are as many as may be, in all tables."""
    before = alive()
    stalls = {"stalls": {"open_steps": MOST}}
    guard = LoopGuard(Settings(max_sessions=MOST, escalation_fallback="wait", tuning=stalls))
    processor = LoopGuardSpanProcessor(guard)
    tracer = provider_with(processor).get_tracer("my.agent")
    early = asked = 0
    for number in range(count):
        feed(tracer, number)
        if number == count // 2:
            early, asked = sizes(guard), len(control.escalations())
    guard.settle()
    # What is open before people keeps its flag, 10,000 at most; an open span keeps its session.
    waiting, opened = len(control.escalations()), MOST if feed is unended else 0
    allowed = {
        "Flag": 2 * waiting + opened, "Milestones": 2 * waiting + ROOM, "ActiveSpan": ABOVE * MOST,
        "Session": opened,
    }  # fmt: skip
    grown = (alive() - before).items()
    assert {kind: n for kind, n in grown if n > MOST + 3 + allowed.get(kind, 0)} == {}
    assert sizes(guard) <= early * 1.1 + 4200 + OF_A_CASE * (waiting - asked)
    processor.shutdown()
    _left.clear()


@pytest.mark.rare
def test_age_leaves_nothing_behind() -> None:
    """When nobody came for the time that sessions are kept, their objects are gone, of all."""
    before = alive()
    processor = LoopGuardSpanProcessor(session_ttl_s=2)
    tracer = provider_with(processor).get_tracer("my.agent")
    for number in range(3_000):
        conversation(tracer, number)
    # Milestones stay with what the process knows of sessions.
    wait_for(lambda: {*(alive() - before)} <= {"Milestones"}, 120)
    processor.shutdown()


def step(number: int, tool: str = "search", **fields: Any) -> Step:
    """A call that is like no other, half a second long."""
    made = call(tool, {"n": number}, f"answer {number}", at=number)
    return replace(made, **fields)


def span_of(number: int, **fields: Any) -> RecordedSpan:
    start = EPOCH + number * SECOND
    given: dict[str, Any] = {
        "name": "execute_tool search", "scope": "my.agent", "trace_id": number + 1,
        "span_id": number + 1, "start": start, "end": start + SECOND // 2,
        "attributes": {**TOOL, "gen_ai.tool.call.result": "x"}, **fields,
    }  # fmt: skip
    return RecordedSpan(**given)


def letters(number: int) -> str:
    """A number in letters only, which no rule takes for an id."""
    return chr(97 + number % 26) * 3 + f"{number:x}".translate(
        str.maketrans("0123456789", "ghijklmnop")
    )


INSTRUMENTATION = "openinference.instrumentation"
Fed = Step | RecordedSpan
KINDS: dict[str, Callable[[int], Fed]] = {
    "steps": step,
    "tools": lambda number: step(number, f"tool{number}"),
    "errors": lambda n: step(n, error=True, outcome=None, error_text=f"failed for {letters(n)}"),
    "failing tools": lambda n: step(n, f"tool{n}", error=True, error_text="not found"),
    "writes": lambda number: step(number, "write_file"),
    "nonces": lambda n: step(n, args={"id": f"x{n}y", "q": "a"}, outcome="same old answer"),
    "loops": lambda number: step(number, args={"n": number // 5}, outcome="the same old answer"),
    "sessions": lambda number: step(number, session=f"s{number}"),
    "traces": span_of,
    "conversations": lambda n: span_of(n, attributes={**TOOL, "gen_ai.conversation.id": f"c{n}"}),
    "span names": lambda number: span_of(number, name=f"run {number}", trace_id=1),
    "scopes": lambda number: span_of(number, scope=f"scope {number}", trace_id=1),
    "parents that nobody saw": lambda number: span_of(number, parent_id=10**9 + number, trace_id=1),
    "two scopes by turns": lambda n: span_of(n, scope=f"{INSTRUMENTATION}.{n % 2}", trace_id=1),
    "keys": lambda n: span_of(n, attributes={**TOOL, f"key {n}": 1, "session.id": f"{n % 9}"}),
}


@pytest.mark.rare
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_tables_do_not_grow(make: Callable[[int], Fed]) -> None:
    """After 50,000 of a kind, each different, the tables have as many entries as after 15,000."""
    # Without the advice on checkpoints: nobody takes these notes here, so that they wait.
    settings = Settings(max_sessions=200, tuning={"budget": {"checkpoint_every": 0}})
    guard = LoopGuard(settings, clock="replay")
    early = 0
    for number in range(50_000):
        made = make(number)
        if isinstance(made, Step):
            guard.observe(made, made.session or "s")
        else:
            guard.on_start(made)
            guard.on_end(made)
        if number == 15_000:
            early = sizes(guard)
    assert sizes(guard) <= early * 1.05 + 4200


def asking(number: int, said: str, tool: str = "read", about: str = "page") -> RecordedSpan:
    """A model that is given the result of its last call, and asks for the next one."""
    turn, chat = divmod(number, 30)
    asked = {"type": "tool_call", "id": f"c{turn}", "name": tool, "arguments": {about: turn}}
    result = {"type": "tool_call_response", "id": f"c{turn - 1}", "response": said}
    last = {**asked, "id": f"c{turn - 1}", "arguments": {about: turn - 1}}
    request = [{"role": "assistant", "parts": [last]}, {"role": "tool", "parts": [result]}]
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.conversation.id": f"s{chat}",
        "gen_ai.input.messages": json.dumps(request) if said else "[]",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [asked]}]),
    }  # fmt: skip
    return span_of(number, name="chat m", trace_id=chat + 1, attributes=attributes)


TEXT = 20_000
LONG: dict[str, Callable[[int, str], RecordedSpan]] = {
    "scopes": lambda number, text: span_of(number, scope=text, trace_id=1),
    "results in messages": asking,
    "arguments in messages": lambda number, _: asking(number, "said", about="words " * 4000),
    "calls that a model asks for": lambda number, text: asking(number, "", text),
}


def texts(thing: object) -> list[str | bytes]:
    """All texts that an object refers to."""
    seen: dict[int, object] = {}
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, (type, ModuleType, FunctionType)):
            seen[id(one)] = one
            # Of the texts among its keys a map tells nobody.
            waiting += [*gc.get_referents(one), *(one if isinstance(one, dict) else ())]
    return [one for one in seen.values() if isinstance(one, (str, bytes))]


@pytest.mark.parametrize("make", LONG.values(), ids=LONG.keys())
def test_long_texts_stay_in_no_table(make: Callable[[int, str], RecordedSpan]) -> None:
    """Of 30 sessions, each with 70 of them, no more are left than are looked for duplicates."""
    guard = LoopGuard(clock="replay")
    for number in range(30 * 70):
        made = make(number, f"{number} " + letters(number) * (TEXT // len(letters(number))))
        guard.on_start(made)
        guard.on_end(made)
    assert sum(map(len, texts(guard))) < 600 * TEXT


CONTENT: dict[str, Callable[[str], Step]] = {
    "result": lambda text: call("dump", {"n": text[:9]}, text),
    "lines of a result": lambda text: call("dump", {"n": text[:9]}, text.replace("x", "x\n")),
    "field of a result": lambda text: call("dump", {"n": text[:9]}, {"rows": text, "id": text[:9]}),
    "arguments": lambda text: call("dump", {"query": text}, "ok"),
    "error": lambda text: replace(call("dump", {"n": 1}, None), error=True, error_text=text),
    "plan": lambda text: call("todo_write", {"todos": [{"content": text, "status": "open"}]}, "ok"),
    "model": lambda text: Step(Kind.MODEL, "m", text=text, end=EPOCH),
    "agent": lambda text: Step(Kind.AGENT, "a", args=text, outcome=text, text=text, end=EPOCH),
    "user": lambda text: Step(Kind.OTHER, "user", args=text, text=text, end=EPOCH),
}


@pytest.mark.parametrize("make", CONTENT.values(), ids=CONTENT.keys())
def test_a_session_keeps_no_long_text(make: Callable[[str], Step]) -> None:
    guard = LoopGuard(clock="replay")
    for number in range(12):
        guard.observe(make(f"{number:09} " + "words x " * 12_500), "s")
    assert max(map(len, texts(guard))) < 10_000


@pytest.mark.parametrize("block", [otel_loopguard.session, otel_loopguard.turn])
def test_long_keys_are_sessions_of_their_own_and_are_not_kept(
    block: Callable[[str], AbstractContextManager[object]],
) -> None:
    """An application may take for a key what a caller sends it."""
    processor = LoopGuardSpanProcessor()
    tracer = provider_with(processor).get_tracer("my.agent")
    keys = ["k" * 100_000 + end for end in "ab"]
    for key in keys:
        with block(key):
            tool_call(tracer)
        processor.guard.observe(step(1), key)
    assert len(processor.guard._sessions) == len(keys)
    assert control.abort(keys[0], by="ada")
    with block(keys[0]):
        assert control.current().action is Action.ABORT
    with block(keys[1]):
        assert control.current().action is Action.ALLOW
    assert max(map(len, texts(processor.guard))) < 10_000
    processor.shutdown()


OF_KIND: dict[str, dict[str, Any]] = {
    "tool": TOOL, "chat": {MARK: "chat"}, "agent": {MARK: "invoke_agent"}, "other": {},
}  # fmt: skip


@pytest.mark.parametrize(("_name", "kind", "given"), rows(__file__, "said"))
def test_of_ended_spans_no_long_text_is_kept(_name: str, kind: str, given: str) -> None:
    """Nor of their errors; of long arguments one text stands for all."""
    guard = LoopGuard(clock="replay")
    for number in range(12):
        text = f"{number:09} " + "words x " * 12_500
        said = {"exception.message": text, "exception.type": "ValueError"}
        status = ("error", "ok")[number % 2]
        filled = json.loads(given.replace("TEXT", text)).items()
        more = {key: one if isinstance(one, str) else json.dumps(one) for key, one in filled}
        made = span_of(
            number, trace_id=1, attributes={**OF_KIND[kind], **more}, events=[("exception", said)],
            status=status, description=text,
        )  # fmt: skip
        guard.on_start(made)
        guard.on_end(made)
    assert max(map(len, texts(guard))) < 25_000
