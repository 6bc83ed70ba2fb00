"""What the guard refused is no evidence, however it comes back as a span."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Status, StatusCode

from otel_loopguard import (
    BreakerOpenError,
    LoopGuard,
    LoopGuardPaused,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    control,
    resilience,
    semconv,
    session,
    sessions,
    turn,
)
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.agents import provider_with

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

ARGS = {"text": "hello"}


class Agent:
    """An agent that has a check against one of its tools, and insists on that tool."""

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self.decided: list[Decision] = []
        self.guard = LoopGuard(on_decision=lambda _, decision: self.decided.append(decision))
        self.provider = provider_with(LoopGuardSpanProcessor(self.guard))
        self.tracer = self.provider.get_tracer("agent")
        resilience.checks().register(
            "hours", lambda _: ("it is night there.", "Wait until eight."), tool="post"
        )

    def begin(self, name: str = "post", args: object = ARGS) -> Span:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.arguments": json.dumps(args),
        }
        return self.tracer.start_span(f"execute_tool {name}", attributes=attributes)

    def told(self) -> str:
        refused = control.refused("post", ARGS)
        assert refused is not None
        assert (refused.by, refused.hint) == ("check", "it is night there. Wait until eight.")
        return refused.hint or ""


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent whose session is named by the context."""
    made = Agent()
    with session(made.key):
        yield made
    made.provider.shutdown()
    assert made.guard.faults.counts == {}


def marked(agent: Agent) -> None:
    """As adapters leave it."""
    agent.told()
    span = agent.begin()
    span.set_attribute("error.type", semconv.ERROR_DENY)
    span.set_status(Status(StatusCode.ERROR, "refused by the guard"))
    span.end()


def raised(agent: Agent) -> None:
    """The application raises an error of its own with what it was told."""
    span = agent.begin()
    span.record_exception(ValueError(agent.told()))
    span.set_status(Status(StatusCode.ERROR, "ValueError"))
    span.end()


def wrapped(agent: Agent) -> None:
    """A framework makes a message for the model of that."""
    said = f"Error: ToolException({agent.told()!r})\n Please fix your mistakes."
    span = agent.begin()
    span.set_attribute("error.type", "tool_error")
    span.set_status(Status(StatusCode.ERROR, said))
    span.end()


def answered(agent: Agent) -> None:
    """It stands as the result of the call."""
    span = agent.begin()
    span.set_attribute("gen_ai.tool.call.result", f"{agent.told()}\n")
    span.end()


def by_breaker(agent: Agent) -> None:
    """The tool itself asks a breaker, which raises."""
    while resilience.breakers().standing("post").state == "closed":
        resilience.breakers().ended("post", "tool", ConnectionError("reset"))
    span = agent.begin()
    with pytest.raises(BreakerOpenError) as stop, resilience.breaker("post"):
        pass
    span.record_exception(stop.value)
    span.set_status(Status(StatusCode.ERROR))
    span.end()


def by_pause(agent: Agent) -> None:
    """The tool waits at a gate until it gives up."""
    if sessions.report(agent.key) is None:
        agent.begin("look").end()
    control.pause(agent.key, by="ada")
    span = agent.begin()
    with pytest.raises(LoopGuardPaused) as stop:
        control.gate(0)
    control.resume(agent.key)
    span.set_status(Status(StatusCode.ERROR, f"Error executing tool post: {stop.value}"))
    span.end()


@pytest.mark.parametrize("refuse", [marked, raised, wrapped, answered, by_breaker, by_pause])
def test_it_is_neither_failure_nor_repeat(agent: Agent, refuse: Callable[[Agent], None]) -> None:
    """No detector, no count, no profile and no check learns from it."""
    for _ in range(12):
        refuse(agent)
    assert agent.decided == []
    report = sessions.report(agent.key)
    assert report is not None
    assert (report.failures, [one for one in report.tools if one.name == "post"]) == (0, [])
    profile = agent.guard.profiler.summary("post")
    assert profile is None or profile.calls == 0
    assert resilience.checks().learned("post", ARGS) is None


def test_what_only_messages_tell_is_no_evidence_either(agent: Agent) -> None:
    """The model's next request has the refusal as the result of the call."""
    history: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
    for number in range(12):
        call = {"type": "tool_call", "id": f"c{number}", "name": "post", "arguments": ARGS}
        asks = {"role": "assistant", "parts": [call]}
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(history),
            "gen_ai.output.messages": json.dumps([asks]),
        }
        agent.tracer.start_span("chat", attributes=attributes).end()
        result = {"type": "tool_call_response", "id": f"c{number}", "response": agent.told()}
        history += [asks, {"role": "tool", "parts": [result]}]
    assert agent.decided == []
    report = sessions.report(agent.key)
    assert report is not None
    assert (report.model_calls, report.actions) == (12, 0)


def test_a_failure_of_the_tool_still_counts_between_refusals(agent: Agent) -> None:
    """Each is judged as though the refusals were not there, with true numbers."""
    for _ in range(3):
        raised(agent)
        span = agent.begin("fetch")
        span.set_status(Status(StatusCode.ERROR, "404 Not Found"))
        span.end()
        marked(agent)
    assert [one.action.value for one in agent.decided[:1]] == ["hint"]
    assert all("'fetch'" in one.message and one.count <= 3 for one in agent.decided)


def test_a_hint_behind_a_result_makes_it_no_refusal(agent: Agent) -> None:
    """Some applications put what they were told there, too."""
    said = agent.told()
    span = agent.begin("list")
    span.set_attribute("gen_ai.tool.call.result", f"a.txt\n\n{said}")
    span.end()
    report = sessions.report(agent.key)
    assert report is not None
    assert report.successes == 1


def test_an_exporters_mark_is_no_failure_of_the_call() -> None:
    """The call that a deny is decided on went well, and a replay of what was exported sees it."""
    memory = InMemorySpanExporter()
    exporting = SimpleSpanProcessor(LoopGuardSpanExporter(memory))
    provider = provider_with(LoopGuardSpanProcessor(), exporting)
    with turn(uuid.uuid4().hex, tracer_provider=provider, content=True) as now:
        for _ in range(4):
            now.tool("search", {"q": "x"}, lambda q: f"No results about {q}.")
    provider.shutdown()
    calls = [span for span in memory.get_finished_spans() if span.name.endswith("search")]
    own = calls[3].attributes or {}
    assert own[semconv.DECISION_ACTION] == "deny"
    assert own[semconv.ERROR_TYPE] == semconv.ERROR_DENY
    reader = LoopGuard().reader
    steps = [reader.read(EndedSpanView(span)) for span in calls]
    assert [step and step.error for step in steps] == [False] * 4
