"""What every adapter asks the guard, without a framework."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import uuid
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    control,
    execution,
    resilience,
)
from otel_loopguard.integrations._adapter import Adapter


class Agent:
    """A loop that asks at every step, and never listens."""

    def __init__(self, **options: Any) -> None:
        self.memory = InMemorySpanExporter()
        self.processor = LoopGuardSpanProcessor(pause_limit_s=5)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        known = {"instrumented": lambda: False, "tracer_provider": self.provider}
        self.guarding = Adapter("none", **{**known, **options})
        self.session = uuid.uuid4().hex
        self.ran = 0
        self.told: list[str] = []
        self.refused = 0

    def turn(self, query: str = "x") -> str:
        """A model call, which asks for a search, and the search."""
        session = self.session
        said = self.guarding.before_model(session)
        self.told += [] if said is None else [said]
        call = self.guarding.call("search", {"query": query}, call_id="c", session=session)
        refusal = call.refusal()
        if refusal is not None:
            self.refused += 1
            return refusal
        with call.span() as made:
            self.ran += 1
            made.result("No results.")
        return "No results."


def test_a_loop_is_hinted_denied_and_aborted_without_any_instrumentation() -> None:
    """The spans are our own; nothing runs after the deny, and the abort has what there was."""
    agent = Agent()
    with pytest.raises(LoopGuardAbort) as stop:
        for _ in range(20):
            agent.turn()
    assert agent.ran == 4
    assert agent.refused == 1
    assert len(agent.told) == 2
    assert agent.told[0].startswith("'search' was called 3 times")
    assert stop.value.parts == ("No results.",) * 4


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
        call = agent.guarding.call("search", {"query": "y"}, session=agent.session)
        if asynchronous and kind == "model":
            assert asyncio.run(agent.guarding.before_model_async(agent.session)) is None
        elif asynchronous:
            assert asyncio.run(call.refusal_async()) is None
        elif kind == "model":
            assert agent.guarding.before_model(agent.session) is None
        else:
            assert call.refusal() is None


def test_the_gate_of_an_adapter_has_its_limit() -> None:
    """It never waits longer than it was told."""
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


def test_what_is_chosen_is_done_by_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """An execution choice other than "now" goes to the callback, and its text to the model."""
    unguarded = execution.admit("search", {"query": "x"})
    answer = dataclasses.replace(unguarded, choice=execution.Choice.DEFER)
    monkeypatch.setattr("otel_loopguard.integrations._adapter.admit", lambda *_, **__: answer)
    agent = Agent(on_choice=lambda admission: f"told: {admission.choice}")
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
