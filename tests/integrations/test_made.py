"""Calls that begin and end apart, stops that frameworks let through, and runs that begin."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor, resilience, session
from otel_loopguard.integrations._adapter import Adapter, let_through
from otel_loopguard.integrations._tool_call import Calls


class Agent:
    """Tool calls in spans of a framework that say nothing of arguments and results."""

    def __init__(self, **options: Any) -> None:
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(LoopGuardSpanProcessor())
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.guarding = Adapter(
            "none", instrumented=lambda: True, tracer_provider=self.provider, **options
        )
        self.tracer = self.provider.get_tracer("framework")
        self.key = uuid.uuid4().hex

    def call(self, query: str = "x") -> str | None:
        """One call of a search in a span of the framework; the refusal, if it was refused."""
        named = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": self.key}
        with self.tracer.start_as_current_span("execute_tool search", attributes=named):
            call = self.guarding.call("search", {"query": query}, session=self.key)
            said = call.refusal()
            if said is None:
                with call.span() as made:
                    made.result("No results.")
        return said

    def stop(self) -> LoopGuardAbort:
        """Goes on until it is stopped."""
        with pytest.raises(LoopGuardAbort) as stop:
            for _ in range(20):
                self.guarding.before_model(self.key)
                self.call()
        return stop.value


def test_the_guard_knows_what_the_spans_of_a_framework_do_not_say() -> None:
    """Equal arguments and results are told beside them; the exported spans have neither."""
    agent = Agent()
    stop = agent.stop()
    assert str(stop).endswith(
        "'search' was called again, without success, after its loop was denied"
    )
    tools = [one for one in agent.memory.get_finished_spans() if one.name == "execute_tool search"]
    assert len(tools) == 5
    assert all("gen_ai.tool.call.arguments" not in (span.attributes or {}) for span in tools)
    assert (tools[-1].attributes or {})["error.type"] == "loopguard_deny"


def _inside(agent: Agent, span_name: str, args: dict[str, str]) -> None:
    """A call whose span the framework starts and ends inside of the block, saying no arguments."""
    named = {"gen_ai.tool.name": span_name, "gen_ai.conversation.id": agent.key}
    said = named | {"gen_ai.tool.call.result": "No results."}
    call = agent.guarding.call("search", args, session=agent.key)
    if call.refusal() is None:
        with call.span() as made:
            with agent.tracer.start_as_current_span("search", attributes=said):
                pass
            made.result("No results.")


@pytest.mark.parametrize("args", [{"query": "x"}, {}], ids=["an argument", "none"])
def test_a_span_that_starts_inside_of_the_call(args: dict[str, str]) -> None:
    """Its arguments are known from the adapter, where it is the span of that tool."""
    agent = Agent()
    with pytest.raises(LoopGuardAbort, match="was called again"):
        for _ in range(20):
            agent.guarding.before_model(agent.key)
            _inside(agent, "search", args)


def test_own_spans_beside_one_whose_content_is_hidden() -> None:
    """`spans=True`: the guard is told beside the own span what the other one hides."""
    agent = Agent(spans=True)
    hidden = {"gen_ai.tool.call.arguments": "[REDACTED]", "gen_ai.tool.call.result": "[REDACTED]"}
    said = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": agent.key} | hidden
    with pytest.raises(LoopGuardAbort, match="was called again"):
        for _ in range(20):
            agent.guarding.before_model(agent.key)
            call = agent.guarding.call("search", {"query": "x"}, session=agent.key)
            if call.refusal() is not None:
                continue
            with call.span() as made:
                with agent.tracer.start_as_current_span("execute_tool search", attributes=said):
                    pass
                made.result("No results.")


def test_a_span_of_another_tool_inside_of_the_call() -> None:
    """What it was called with is not known: it may be something else each time."""
    agent = Agent()
    for _ in range(20):
        agent.guarding.before_model(agent.key)
        _inside(agent, "fetch", {"query": "x"})


def test_a_span_after_the_call() -> None:
    """It is another call, of which the adapter did not tell."""
    agent = Agent()
    named = {"gen_ai.tool.name": "search", "gen_ai.conversation.id": agent.key}
    said = named | {"gen_ai.tool.call.result": "No results."}
    for _ in range(20):
        agent.guarding.before_model(agent.key)
        with agent.guarding.call("search", {"query": "x"}, session=agent.key).span():
            pass
        with agent.tracer.start_as_current_span("search", attributes=said):
            pass


def _leave(agent: Agent, query: str, error_type: str) -> None:
    """A failed call, as instrumentations write it: its arguments are a text."""
    said = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": f'{{"query": "{query}"}}'}
    with agent.tracer.start_as_current_span("execute_tool search", attributes=said) as span:
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR, "invalid query"))


@pytest.mark.parametrize(
    ("error_type", "known"), [("loopguard_deny", 0), ("ValueError", 1)], ids=["refused", "failed"]
)
def test_a_refused_call_says_nothing_of_its_tool(error_type: str, known: int) -> None:
    """No check learns from it, as it does from calls that failed; the tool was not called."""
    agent = Agent()
    for query in ("a", "b", "c", "d"):
        _leave(agent, query, error_type)
    assert len(resilience.problems("search", {"query": "e"})) == known


def test_the_next_run_of_a_conversation_goes_on() -> None:
    """A run that begins takes down what the policy stopped in the run before it."""
    agent = Agent()
    agent.stop()
    with agent.tracer.start_as_current_span("POST /chat"):
        agent.guarding.begin(agent.key)
        assert agent.guarding.before_model(agent.key) is None
        assert agent.call() is None


def test_a_run_that_begins_inside_of_a_run_changes_nothing() -> None:
    """It is a sub-agent of the run that was stopped."""
    agent = Agent()
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "lead"}
    with agent.tracer.start_as_current_span("lead", attributes=run):
        agent.stop()
        agent.guarding.begin(agent.key)
        with pytest.raises(LoopGuardAbort):
            agent.guarding.before_model(agent.key)


def test_the_next_run_in_a_named_session_goes_on() -> None:
    """A session is a conversation, whoever named it; each run that begins in it is a turn."""
    agent = Agent()
    with session(agent.key):
        agent.stop()
        agent.guarding.begin(agent.key)
        assert agent.guarding.before_model(agent.key) is None


def test_calls_that_begin_and_end_apart() -> None:
    """Each is a span of its own; one that begins again, or did not come back, is ended."""
    agent = Agent(spans=True)
    calls = Calls()
    first = agent.guarding.call("search", {"query": "x"}, call_id="1", session=agent.key).span()
    calls.begin("1", first)
    calls.begin("1", agent.guarding.call("search", call_id="2", session=agent.key).span())
    made = calls.take("1")
    assert made is not None
    made.end()
    assert calls.take("1") is None
    calls.begin("3", agent.guarding.call("search", call_id="3", session=agent.key).span())
    calls.end("3", OSError())
    calls.end("3")
    ended = [
        ((span.attributes or {})["gen_ai.tool.call.id"], (span.attributes or {}).get("error.type"))
        for span in agent.memory.get_finished_spans()
    ]
    assert ended == [("1", None), ("2", None), ("3", "OSError")]


def test_calls_that_never_end_are_bounded() -> None:
    """Of more than 1024 the oldest is ended."""
    agent = Agent(spans=True)
    calls = Calls()
    for number in range(1025):
        calls.begin(number, agent.guarding.call("search", session=agent.key).span())
    assert len(agent.memory.get_finished_spans()) == 1
    assert calls.take(0) is None


def test_a_framework_lets_its_own_exceptions_through() -> None:
    """A stop is one of them, and still the stop that it was."""

    class OwnError(Exception):
        """Of a framework."""

    given = LoopGuardAbort("stopped", "run-1", None, ["a part"])
    with pytest.raises(OwnError) as raised, let_through(OwnError), let_through(OwnError):
        raise given
    stop = raised.value
    assert isinstance(stop, LoopGuardAbort)
    assert type(stop).__name__ == "LoopGuardAbort"
    assert (str(stop), stop.session, stop.parts) == ("stopped", "run-1", ("a part",))


def test_other_exceptions_are_left_alone() -> None:
    """Only stops are changed."""
    with pytest.raises(KeyError), let_through(ValueError):
        raise KeyError
