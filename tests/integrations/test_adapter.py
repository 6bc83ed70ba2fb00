"""What every adapter asks the guard, without a framework, and what a missing framework says."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import sys
import threading
import uuid
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import otel_loopguard
from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    control,
    execution,
    resilience,
    session,
)
from otel_loopguard._control.gate import spellings
from otel_loopguard.integrations._adapter import Adapter, raising_as


class PutOff(Exception):  # noqa: N818  # as frameworks name theirs
    """A framework puts a call off."""


class Agent:
    """A loop that asks at every step, and never listens."""

    def __init__(self, **options: Any) -> None:
        self.memory = InMemorySpanExporter()
        self.processor = LoopGuardSpanProcessor(pause_limit_s=5)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("framework")
        self.adapter = Adapter("none", tracer_provider=self.provider, passing=(PutOff,), **options)
        self.session = uuid.uuid4().hex
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


def test_a_loop_is_hinted_denied_and_aborted_without_any_instrumentation() -> None:
    """The spans are our own; nothing runs after the deny, and the abort has what there was."""
    agent = Agent()
    stop = agent.stop()
    assert agent.ran == 4
    assert agent.refused == 3
    assert len(agent.told) == 2
    assert agent.told[0].startswith("'search' was called 3 times")
    assert stop.parts == ("No results.",) * 4


def test_content_stays_here() -> None:
    """The guard knows arguments and results; the spans that are exported do not have them."""
    agent = Agent()
    agent.turn("secret")
    (span,) = agent.memory.get_finished_spans()
    assert span.name == "execute_tool search"
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c",
    }


def test_content_is_exported_on_demand() -> None:
    """As the variable of OpenTelemetry says, or the option."""
    agent = Agent(content=True)
    agent.turn("open")
    (span,) = agent.memory.get_finished_spans()
    assert (span.attributes or {})["gen_ai.tool.call.arguments"] == '{"query":"open"}'
    assert (span.attributes or {})["gen_ai.tool.call.result"] == "No results."


def test_other_calls_of_a_denied_tool_run() -> None:
    """Only the loop is refused: what the model tries in its place is not."""
    agent = Agent()
    for _ in range(4):
        agent.turn()
    control_now = agent.processor.guard.flag_of(agent.session)
    assert control_now is not None
    assert control_now.control.action == "deny"
    agent.turn("another")
    assert agent.ran == 5
    assert agent.refused == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_pause_is_waited_for(asynchronous: bool) -> None:
    """Model and tool wait at the gate, and go on when somebody resumes the session."""
    agent = Agent()
    agent.turn()
    for kind in ("model", "tool"):
        control.pause(agent.session, "looking")
        threading.Timer(0.1, control.resume, [agent.session]).start()
        call = agent.adapter.tool_call("search", {"query": "y"}, session=agent.session)
        if asynchronous and kind == "model":
            assert asyncio.run(agent.adapter.before_model_async(agent.session)) is None
        elif asynchronous:
            assert asyncio.run(call.refusal_async()) is None
        elif kind == "model":
            assert agent.adapter.before_model(agent.session) is None
        else:
            assert call.refusal() is None


def test_the_gate_of_an_adapter_has_its_limit() -> None:
    """It never waits longer than its limit."""
    agent = Agent(limit_s=0.05)
    agent.turn()
    control.pause(agent.session)
    with pytest.raises(LoopGuardPaused):
        agent.turn()
    control.resume(agent.session)


def test_no_span_is_doubled() -> None:
    """Where the span of the call is the current one, or an instrumentor is at work, we add none."""
    agent = Agent()
    tracer = agent.provider.get_tracer("framework")
    with otel_loopguard.session(agent.session), tracer.start_as_current_span("execute_tool search"):
        agent.turn()
    assert [span.name for span in agent.memory.get_finished_spans()] == ["execute_tool search"]
    other = Agent(instrumented=lambda: True)
    other.turn()
    assert other.memory.get_finished_spans() == ()


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
    tools = [one for one in agent.memory.get_finished_spans() if one.name == "execute_tool search"]
    assert len(tools) == 7
    assert all("gen_ai.tool.call.arguments" not in (span.attributes or {}) for span in tools)
    assert (tools[-1].attributes or {})["error.type"] == "loopguard_deny"


def _inside(agent: Instrumented, span_name: str, args: dict[str, str]) -> None:
    """A call whose span the framework starts and ends inside of the block, saying no arguments."""
    named = {"gen_ai.tool.name": span_name, "gen_ai.conversation.id": agent.session}
    said = named | {"gen_ai.tool.call.result": "No results."}
    call = agent.adapter.tool_call("search", args, session=agent.session)
    if call.refusal() is None:
        with call:
            with agent.tracer.start_as_current_span("search", attributes=said):
                pass
            call.set_result("No results.")


@pytest.mark.parametrize("args", [{"query": "x"}, {}], ids=["an argument", "none"])
def test_a_span_that_starts_inside_of_the_call(args: dict[str, str]) -> None:
    """Its arguments are known from the adapter, where it is the span of that tool."""
    agent = Instrumented()
    with pytest.raises(LoopGuardAbort, match="was called again"):
        for _ in range(20):
            agent.adapter.before_model(agent.session)
            _inside(agent, "search", args)


def test_own_spans_beside_one_whose_content_is_hidden() -> None:
    """`spans=True`: the guard gets beside the own span what the other one hides."""
    agent = Instrumented(spans=True)
    hidden = {"gen_ai.tool.call.arguments": "[REDACTED]", "gen_ai.tool.call.result": "[REDACTED]"}
    said = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": agent.session} | hidden
    with pytest.raises(LoopGuardAbort, match="was called again"):
        for _ in range(20):
            agent.adapter.before_model(agent.session)
            call = agent.adapter.tool_call("search", {"query": "x"}, session=agent.session)
            if call.refusal() is not None:
                continue
            with call:
                with agent.tracer.start_as_current_span("execute_tool search", attributes=said):
                    pass
                call.set_result("No results.")


def test_a_span_of_another_tool_inside_of_the_call() -> None:
    """What it was called with is not known: it may be something else each time."""
    agent = Instrumented()
    for _ in range(20):
        agent.adapter.before_model(agent.session)
        _inside(agent, "fetch", {"query": "x"})


def test_a_span_after_the_call() -> None:
    """It is another call, of which the adapter did not tell."""
    agent = Instrumented()
    named = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": agent.session}
    said = named | {"gen_ai.tool.call.result": "No results."}
    for _ in range(20):
        agent.adapter.before_model(agent.session)
        with agent.adapter.tool_call("search", {"query": "x"}, session=agent.session):
            pass
        with agent.tracer.start_as_current_span("search", attributes=said):
            pass


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
    ended = [
        ((span.attributes or {})["gen_ai.tool.call.id"], (span.attributes or {}).get("error.type"))
        for span in agent.memory.get_finished_spans()
    ]
    assert ended == [("1", None), ("2", None), ("3", "OSError")]


def test_calls_that_never_end_are_bounded() -> None:
    """Of more than 1024 the oldest is ended."""
    agent = Instrumented(spans=True)
    for number in range(1025):
        call = agent.adapter.tool_call("search", session=agent.session)
        agent.adapter.start_call(number, call)
    assert len(agent.memory.get_finished_spans()) == 1
    agent.adapter.end_call(0)
    assert len(agent.memory.get_finished_spans()) == 1


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
    """By identity: equal objects are two runs, and the same object is the same run."""
    runs, one, other = Adapter("none"), [0], [0]
    assert not runs.knows_run(one)
    assert runs.run_key(one) == runs.run_key(one)
    assert runs.knows_run(one)
    assert runs.run_key(one) != runs.run_key(other)


def test_keys_are_bounded_and_never_handed_on() -> None:
    """A run that is over keeps its place, so that no other can have it; the newest 1024 do."""
    runs, keys = Adapter("none"), set[str]()
    for _ in range(500):
        keys.add(runs.run_key([0]))
        gc.collect(0)
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
        assert agent.adapter.find("another") is None
        for number in range(1024):
            agent.adapter.tool_call("search", session=f"run-{number}").start().end()
        assert agent.adapter.find(agent.session) is not None
        assert len(agent.adapter._keys) == 1024  # pyright: ignore[reportPrivateUsage]


def test_runs_of_one_trace_are_told_apart_by_their_keys() -> None:
    """The second run in a request of a server is not held by what the first one did."""
    agent = Agent(spans=True)
    with agent.tracer.start_as_current_span("POST /"):
        for runs in (1, 2):
            agent.session = uuid.uuid4().hex
            agent.stop()
            assert agent.ran == 4 * runs


@pytest.mark.parametrize("within", [False, True], ids=["no span", "a span"])
def test_a_stopped_conversation_goes_on_with_its_next_run(within: bool) -> None:
    """Without any span of the run too; a person's abort stays."""
    agent = Agent()
    agent.adapter.begin(agent.session)
    agent.stop()
    with agent.tracer.start_as_current_span("POST /chat") if within else nullcontext():
        agent.adapter.begin(agent.session)
        agent.turn()
    assert agent.ran == 5
    control.abort(agent.session)
    agent.adapter.begin(agent.session)
    with pytest.raises(LoopGuardAbort):
        agent.turn()


def test_a_named_session_goes_on_with_its_next_run() -> None:
    """Whatever key the framework has; entering the session anew changes nothing."""
    agent, key = Agent(), uuid.uuid4().hex
    with session(key):
        agent.stop()
    agent.session = uuid.uuid4().hex
    with session(key):
        with pytest.raises(LoopGuardAbort):
            agent.turn()
        agent.adapter.begin(uuid.uuid4().hex)
        agent.turn()
    assert agent.ran == 5


def test_a_hook_without_asyncio_waits_inside_of_a_loop() -> None:
    """It holds the loop, as the framework's own call does, and does not run on."""
    agent = Agent()
    agent.turn()
    control.pause(agent.session)
    threading.Timer(0.2, control.resume, [agent.session]).start()

    async def call() -> Any:
        agent.turn()
        found = agent.processor.guard.flag_of(agent.session)
        return None if found is None else found.control.action

    assert asyncio.run(call()) == "allow"


def test_a_span_below_another_is_of_its_session() -> None:
    """The key that the framework has names spans that stand alone only."""
    agent = Agent()
    with session("above"), agent.tracer.start_as_current_span("invoke_agent a") as above:
        pass
    call = agent.adapter.tool_call("search", {"query": "x"}, session=agent.session, span=above)
    with call:
        call.set_result("No results.")
    assert agent.processor.guard.flag_of(agent.session) is None


def test_a_call_that_is_put_off_did_not_fail() -> None:
    """Exceptions by which the framework puts a call off come out, and are no failure."""
    agent = Agent()
    with pytest.raises(PutOff), agent.adapter.tool_call("search", session=agent.session):
        raise PutOff
    (span,) = agent.memory.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"query": "x"}, [{"query": "x"}, "x"]),
        ({"n": 3}, [{"n": 3}]),
        ({"a": "x", "b": "y"}, [{"a": "x", "b": "y"}]),
        ("x", ["x"]),
        (None, [None]),
    ],
    ids=["one text", "one number", "two", "text", "unknown"],
)
def test_a_call_is_known_as_its_span_has_it(args: object, expected: list[object]) -> None:
    """OpenInference writes a single text in place of the map that has nothing else."""
    assert list(spellings(args)) == expected


ADAPTERS = {
    "agent_framework": "agent_framework",
    "autogen": "autogen_agentchat",
    "crewai": "crewai",
    "google_adk": "google.adk",
    "langchain": "langchain",
    "llama_index": "llama_index",
    "mcp": "mcp_types",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
    "strands": "strands",
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_framework_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one of a module that is not there, and has the command that installs it."""
    name, hidden = f"otel_loopguard.integrations.{adapter}", ADAPTERS[adapter]
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
            msg = f"No module named {name!r}"
            raise ModuleNotFoundError(msg, name=name)
