"""What every adapter asks the guard, the run that something belongs to, and missing frameworks."""

import asyncio
import dataclasses
import importlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    control,
    execution,
    resilience,
    session,
)
from otel_loopguard._control.context import named_session
from otel_loopguard.integrations._adapter import Adapter, raising_as
from otel_loopguard.integrations._runs import AgentRun, captured, capturing
from tests.agents import Ended, provider_with
from tests.control.messages import action_of, new_name
from tests.tables import rows


class PutOff(Exception):  # noqa: N818  # as frameworks name theirs
    """A framework puts a call off."""


class Agent:
    """A loop that asks at every step, and never listens."""

    def __init__(self, **options: Any) -> None:
        self.ended = Ended()
        self.processor = LoopGuardSpanProcessor(pause_limit_s=5)
        provider = provider_with(self.processor, self.ended)
        self.tracer = provider.get_tracer("framework")
        self.adapter = Adapter("none", tracer_provider=provider, passing=(PutOff,), **options)
        self.session = new_name()
        self.ran = 0
        self.told: list[str] = []
        self.refused = 0

    def search(self, query: str = "x") -> str | None:
        """One call of a search; the refusal, if it was refused."""
        call = self.adapter.tool_call("search", {"query": query}, call_id="c", session=self.session)
        refusal = call.refusal()
        if refusal is not None:
            self.refused += 1
            return refusal
        with call:
            self.ran += 1
            call.set_result("No results.")
        return None

    @property
    def action(self) -> str:
        return action_of(self.processor.guard, self.session).value

    def spans(self) -> list[dict[str, Any]]:
        """Attributes of the tool spans that ended."""
        return [dict(span.attributes or {}) for span in self.ended.named("execute_tool")]

    def turn(self, query: str = "x") -> str:
        """A model call, which asks for a search, and the search."""
        said = self.adapter.before_model(self.session)
        self.told += [] if said is None else [said]
        return self.search(query) or "No results."

    def stop(self) -> LoopGuardAbort:
        """Goes on until it is stopped."""
        with pytest.raises(LoopGuardAbort) as stop:
            for _ in range(20):
                self.turn()
        return stop.value


class Instrumented(Agent):
    """Tool calls in spans of a framework that say nothing of arguments and results."""

    def __init__(self, **options: Any) -> None:
        super().__init__(instrumented=lambda: True, **options)

    def search(self, query: str = "x") -> str | None:
        named = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": self.session}
        with self.tracer.start_as_current_span("execute_tool search", attributes=named):
            return super().search(query)


@pytest.mark.parametrize("kind", ["model", "tool"])
def test_a_pause_is_waited_for(kind: str) -> None:
    """Until somebody resumes the session, in asyncio too; a hook that awaits nothing holds it."""
    agent = Agent()
    agent.turn()
    call = agent.adapter.tool_call("search", {"query": "y"}, session=agent.session)
    model = agent.adapter.before_model, agent.adapter.before_model_async
    ask, ask_async = model if kind == "model" else (call.refusal, call.refusal_async)
    given = (agent.session,) if kind == "model" else ()

    async def held() -> object:
        return ask(*given)

    for way in (
        lambda: ask(*given),
        lambda: asyncio.run(ask_async(*given)),
        lambda: asyncio.run(held()),
    ):
        control.pause(agent.session, "looking")
        threading.Timer(0.1, control.resume, [agent.session]).start()
        assert way() is None
        assert agent.action == "allow"


def _tell(admission: execution.Admission) -> str:
    return f"told: {admission.choice}"


def test_what_is_chosen_is_done_by_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """An execution choice other than "now" goes to the callback, and its text to the model."""
    unguarded = execution.admit("search", {"query": "x"})
    answer = dataclasses.replace(unguarded, choice=execution.Choice.DEFER)
    monkeypatch.setattr("otel_loopguard.integrations._adapter.admit", Mock(return_value=answer))
    agent = Agent(on_choice=_tell)
    assert agent.turn() == "told: defer"
    assert agent.ran == 0


def test_a_call_that_a_breaker_or_a_check_forbids_is_refused() -> None:
    """Without a callback what forbids a call is followed, in a session with and without a loop."""
    agent = Agent()
    resilience.checks().register("size", lambda args: ("it is too big.", "Ask for less."))
    assert agent.turn("y") == "it is too big. Ask for less."
    resilience.checks().register("size", lambda _: None)
    for _ in range(3):
        resilience.breakers().ended("search", "tool", ConnectionError("reset"))
    assert "breaker" in agent.turn("y")
    assert agent.ran == 0
    assert agent.refused == 2
    resilience.breakers().reset("search")
    agent.turn("y")
    assert agent.ran == 1


def test_the_guard_knows_what_the_spans_of_a_framework_do_not_say() -> None:
    """Equal arguments and results are passed beside them; the exported spans have neither."""
    agent = Instrumented()
    stop = agent.stop()
    assert str(stop).startswith(
        "'search' was called again, without success, after its loop was denied"
    )
    tools = agent.spans()
    assert len(tools) == 7
    assert all("gen_ai.tool.call.arguments" not in span for span in tools)
    assert tools[-1]["error.type"] == "loopguard_deny"


def made(
    agent: Instrumented, args: dict[str, str], where: str = "inside", tool: str = "search",
    **content: str,
) -> None:  # fmt: skip
    """A call whose span the framework makes inside of the block or after it, without arguments."""
    named = {"gen_ai.tool.name": tool, "gen_ai.conversation.id": agent.session}
    hidden = {f"gen_ai.tool.call.{name}": value for name, value in content.items()}
    said = {"gen_ai.tool.call.result": "No results.", **hidden}

    def span() -> None:
        with agent.tracer.start_as_current_span("search", attributes=named | said):
            pass

    call = agent.adapter.tool_call("search", args, session=agent.session)
    if call.refusal() is None:
        with call:
            if where == "inside":
                span()
            call.set_result("No results.")
        if where == "after":
            span()


@pytest.mark.parametrize(("_name", "ends", "options", "how"), rows(__file__, "spans"))
def test_a_span_that_the_framework_makes(_name: str, ends: str, options: str, how: str) -> None:
    """Its content is known from the adapter, where it is the span of that call."""
    agent = Instrumented(**json.loads(options))
    stops = pytest.raises(LoopGuardAbort, match="was called again")
    with stops if ends == "stopped" else nullcontext():
        for _ in range(20):
            agent.adapter.before_model(agent.session)
            made(agent, **json.loads(how))


def test_a_span_that_only_names_the_tool_is_none_of_the_call() -> None:
    """OpenLLMetry names it on the step of LlamaIndex that makes the call, which is not read."""
    agent = Agent()
    named = {"traceloop.entity.name": "BaseWorkflowAgent.task", "tool.name": "search"}
    with agent.tracer.start_as_current_span("BaseWorkflowAgent.task", attributes=named):
        agent.stop()
    assert (agent.ran, len(agent.spans())) == (4, 7)


def test_a_run_that_begins_inside_of_a_run_changes_nothing() -> None:
    """It is a sub-agent of the run that was stopped."""
    agent = Instrumented()
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead"}
    with agent.tracer.start_as_current_span("lead", attributes=run):
        agent.stop()
        agent.adapter.begin(agent.session)
        with pytest.raises(LoopGuardAbort):
            agent.adapter.before_model(agent.session)


def test_calls_that_start_and_end_apart() -> None:
    """Each is a span of its own; one that starts again, or did not come back, is ended."""
    agent = Instrumented(spans=True)
    adapter = agent.adapter
    adapter.start_call("1", adapter.tool_call("search", call_id="1", session=agent.session))
    adapter.start_call("1", adapter.tool_call("search", call_id="2", session=agent.session))
    for _ in range(2):
        adapter.finish_call("1", "found")
    adapter.start_call("3", adapter.tool_call("search", call_id="3", session=agent.session))
    adapter.end_call("3", OSError())
    adapter.end_call("3")
    ended = [(span["gen_ai.tool.call.id"], span.get("error.type")) for span in agent.spans()]
    assert ended == [("1", None), ("2", None), ("3", "OSError")]


def test_calls_that_never_end_are_bounded() -> None:
    """Of more than 1024 the oldest is ended."""
    agent = Instrumented(spans=True)
    for number in range(1025):
        call = agent.adapter.tool_call("search", session=agent.session)
        agent.adapter.start_call(number, call)
    assert len(agent.ended.spans) == 1
    agent.adapter.end_call(0)
    assert len(agent.ended.spans) == 1


def test_a_framework_lets_its_own_exceptions_through() -> None:
    """A stop is one of them, and still the stop that it was."""

    class OwnError(Exception):
        """Of a framework."""

    given = LoopGuardAbort("stopped", "run-1", None, ["a part"], by="anna")
    with pytest.raises(OwnError) as raised, raising_as(OwnError), raising_as(OwnError):
        raise given
    stop = raised.value
    assert isinstance(stop, LoopGuardAbort)
    assert type(stop).__name__ == "LoopGuardAbort"
    assert (str(stop), stop.session, stop.parts) == ("stopped", "run-1", ("a part",))
    assert stop.outcome == "aborted_by_person"
    with pytest.raises(KeyError), raising_as(ValueError):
        raise KeyError


def test_a_run_has_one_key_and_each_its_own() -> None:
    """By identity, whoever asks: a run that is over keeps its place, among the newest 1024."""
    runs, one, other = Adapter("none"), [0], [0]
    assert not runs.knows_run(one)
    assert runs.run_key(one) == runs.run_key(one) == Adapter("none").run_key(one)
    assert runs.knows_run(one)
    assert runs.run_key(one) != runs.run_key(other)
    keys = {runs.run_key([0]) for _ in range(500)}
    assert len(keys) == 500
    held = [[number] for number in range(2000)]
    for run in held:
        runs.run_key(run)
    assert runs.knows_run(held[-1024])
    assert not runs.knows_run(held[-1025])


def test_keys_that_spans_were_named_after_are_bounded() -> None:
    """Of the newest 1024 it is known whose run they are, in one trace too."""
    agent = Agent(spans=True)
    with agent.tracer.start_as_current_span("POST /"):
        agent.turn()
        assert agent.adapter.find(new_name()) is None
        for number in range(1024):
            agent.adapter.tool_call("search", session=f"run-{number}").start().end()
        assert agent.adapter.find(agent.session) is not None
        assert len(agent.adapter._keys) == 1024  # pyright: ignore[reportPrivateUsage]


def test_a_span_below_another_is_of_its_session() -> None:
    """The key that the framework has names spans that stand alone only."""
    agent = Agent()
    with session("above"), agent.tracer.start_as_current_span("invoke_agent a") as above:
        pass
    call = agent.adapter.tool_call("search", {"query": "x"}, session=agent.session, span=above)
    with call:
        call.set_result("No results.")
    assert agent.processor.guard.flag_of(agent.session) is None


PLACE = Path(resilience.__file__).parents[1] / "integrations"
ADAPTERS = sorted(one.stem for one in PLACE.glob("[a-z]*.py") if one.stem != "own_loop")
MODULES = {"autogen": "autogen_agentchat", "google_adk": "google.adk", "mcp": "mcp_types"}
MODULES["openai_agents"] = "agents"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_framework_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one of a module that is not there, and has the command that installs it."""
    name, hidden = f"otel_loopguard.integrations.{adapter}", MODULES.get(adapter, adapter)
    for module in [*sys.modules]:
        if module in {name, hidden} or module.startswith(f"{hidden}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_Hides(hidden), *sys.meta_path])
    extra = adapter.replace("_", "-")
    with pytest.raises(
        ModuleNotFoundError, match=rf"pip install 'otel-loopguard\[{extra}\]'"
    ) as missing:
        importlib.import_module(name)
    assert missing.value.__suppress_context__  # one traceback


class _Hides:
    """Finds no module of a framework, although it is installed."""

    def __init__(self, hidden: str) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """As of `importlib.abc.MetaPathFinder`."""
        del path, target
        if name == self._hidden or name.startswith(f"{self._hidden}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_run_has_a_key_of_its_own_and_leaves_nothing_behind() -> None:
    """What an agent starts belongs to its run; a trace or a name of the context is the session."""
    run, other = (AgentRun.begin(traced=False) for _ in range(2))
    assert None not in (run.call(named_session), other.call(named_session))
    assert run.call(named_session) != other.call(named_session)
    assert (named_session(), AgentRun.current()) == (None, None)
    assert run.call(lambda: AgentRun.begin(traced=False)) is run
    assert run.call(lambda: run.call(named_session)) == run.call(named_session)
    assert AgentRun.begin(traced=True).call(named_session) is None
    with otel_loopguard.session("mine"):
        assert AgentRun.begin(traced=False).call(named_session) == "mine"


def test_a_stream_is_in_the_run_at_each_step() -> None:
    """A generator sees the run at every step, and is closed when the caller stops."""
    run = AgentRun.begin(traced=False)
    closed: list[AgentRun | None] = []

    def steps() -> Iterator[AgentRun | None]:
        try:
            while True:
                yield AgentRun.current()
        finally:
            closed.append(AgentRun.current())

    stream = run.call(steps)
    assert [next(stream), next(stream)] == [run, run]
    assert AgentRun.current() is None
    stream.close()
    assert closed == [run]


def test_a_thread_without_the_context_joins() -> None:
    """A thread of a framework gets the run back."""
    run, seen = AgentRun.begin(traced=False), list[AgentRun | None]()
    thread = threading.Thread(target=lambda: seen.append(run.join(AgentRun.current)))
    thread.start()
    thread.join(60)
    assert seen == [run]


def now(text: str) -> str:
    return text


async def later(text: str) -> str:
    return text


async def steps(text: str) -> Any:
    yield "first"
    yield text


async def _run(function: Any) -> list[str]:
    made = function("done")
    if hasattr(made, "__aiter__"):
        return [item async for item in made]
    return [await made if asyncio.iscoroutine(made) else made]


@pytest.mark.parametrize("function", [now, later, steps], ids=["now", "later", "steps"])
def test_a_call_is_noted_once_and_only_inside_the_block(function: Any) -> None:
    """The function does the same; the second run in the block, and one outside, are not noted."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    adapter = Adapter("x", tracer_provider=provider, content=True)

    async def run() -> list[list[str]]:
        with capturing(adapter.tool_call("search", {"q": "x"})):
            said = [await _run(captured(function)), await _run(captured(function))]
        return [*said, await _run(captured(function))]

    plain = asyncio.run(_run(function))
    assert asyncio.run(run()) == [plain] * 3
    assert captured(once := captured(function)) is once
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "done"
