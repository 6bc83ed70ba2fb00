"""How a run ended that was stopped, for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    LoopGuardStop,
    Settings,
    control,
    session,
    turn,
)
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Outcome, outcome_of
from otel_loopguard.detectors import DETECTORS
from tests.calls import Run

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
CALL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"query": "x"}',
    "gen_ai.tool.call.result": "No results.",
}


def stopped(key: str, **settings: Any) -> tuple[LoopGuardStop, dict[str, Any]]:
    """The stop of an agent that calls the same tool again and again, and its agent's span."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor(LoopGuard(Settings(**settings))))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test.agent")
    with session(key), tracer.start_as_current_span("invoke_agent helper", attributes=AGENT):
        stop = None
        for _ in range(50):
            try:
                control.gate(limit_s=0.01)
            except LoopGuardStop as found:
                stop = found
                break
            with tracer.start_as_current_span("execute_tool search", attributes=CALL):
                pass
    provider.shutdown()
    assert stop is not None
    agents = [one for one in kept.get_finished_spans() if one.name.startswith("invoke_agent")]
    return stop, dict(agents[0].attributes or {})


def test_a_loop_says_so() -> None:
    """On the error, as JSON, and on the span of the agent."""
    stop, span = stopped("ends-1")
    decision = stop.decision
    assert decision is not None
    assert stop.outcome is Outcome.LOOP
    assert json.loads(json.dumps(stop.as_dict())) == {
        "outcome": "loop",
        "session": "ends-1",
        "message": str(stop),
        "by": "policy",
        "reason": decision.reason,
        "detector": decision.detector,
        "decision_id": decision.id,
    }
    assert span["loopguard.outcome"] == "loop"


def test_a_spent_budget_says_so() -> None:
    """The word is the same for limits of all kinds."""
    stop, span = stopped("ends-3", budget_actions=2)
    assert (stop.outcome, span["loopguard.outcome"]) == ("budget", "budget")


def test_a_pause_that_nobody_ended_is_one() -> None:
    """The decision still says why."""
    stop, span = stopped("ends-4", max_action="pause")
    assert isinstance(stop, LoopGuardPaused)
    assert stop.as_dict()["outcome"] == "paused"
    assert stop.as_dict()["detector"] == "exact_repeat"
    assert "loopguard.outcome" not in span


def test_a_person_who_aborts_is_told_from_the_guard() -> None:
    """On the error that `turn()` raises, and on the span."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor(LoopGuard(Settings())))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with pytest.raises(LoopGuardAbort) as told, turn("ends-5", tracer_provider=provider) as now:
        control.abort("ends-5", by="anna")
        now.hint()
    provider.shutdown()
    found = told.value.as_dict()
    assert (found["outcome"], found["by"], found["decision_id"]) == (
        "aborted_by_person", "anna", None,
    )  # fmt: skip
    spans = [dict(one.attributes or {}) for one in kept.get_finished_spans()]
    assert [one.get("loopguard.outcome") for one in spans] == ["aborted_by_person"]


@pytest.mark.parametrize(
    ("by", "outcome"),
    [
        ("anna", "aborted_by_person"),
        ("by hand", "aborted_by_person"),
        ("application", "aborted_by_application"),
        ("time limit", "unanswered"),
        ("policy", "aborted"),
        (None, "aborted"),
    ],
)
def test_who_aborted_without_a_decision(by: str | None, outcome: str) -> None:
    stop = LoopGuardAbort("it is over", "key", by=by)
    assert stop.outcome == outcome


def test_every_detector_has_an_outcome_of_its_family() -> None:
    """What finds errors or equal verdicts fails, what finds no progress stalls; a budget is one."""
    run = Run()
    run.calls(*[Step(Kind.TOOL, "search", args={"q": "x"}, outcome="none") for _ in range(9)])
    decision = run.decisions[-1]
    expected = {
        "repetition": {"loop"},
        "exchange": {"loop"},
        "errors": {"failing", "loop"},
        "standstill": {"stalled", "loop"},
        "same_verdict": {"failing"},
        "milestones": {"stalled", "failing"},
        "graph": {"loop", "stalled", "budget"},
        "text": {"loop", "stalled"},
    }
    from dataclasses import replace

    for detector in DETECTORS:
        outcome = outcome_of(replace(decision, detector=detector.name), None)
        of_family = expected.get(detector.family, set(Outcome))
        assert outcome.value in expected.get(detector.name, of_family)
    named = {detector.name for detector in DETECTORS} | {"stall"}
    from otel_loopguard.core import decision as module

    assert set(module._OUTCOMES) <= named
