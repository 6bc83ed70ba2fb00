"""How a run ended that was stopped, for programs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    LoopGuardStop,
    control,
    turn,
)
from otel_loopguard.core.decision import Outcome, outcome_of
from otel_loopguard.detectors import DETECTORS
from tests.agents import Ended, agent, provider_with, tool_call
from tests.calls import Run as Judged
from tests.calls import call
from tests.control.messages import Run


def stopped(**settings: Any) -> tuple[LoopGuardStop, str | None]:
    """The stop of an agent that calls the same tool again and again, and what its span says."""
    with Run(**settings) as run:
        tracer = provider_with(run.processor, ended := Ended()).get_tracer("test.agent")
        with agent(tracer), pytest.raises(LoopGuardStop) as stop:
            for _ in range(50):
                control.gate(limit_s=0.01)
                tool_call(tracer)
    (span,) = ended.named("invoke_agent")
    said = (span.attributes or {}).get("loopguard.outcome")
    return stop.value, None if said is None else str(said)


def test_a_loop_says_so() -> None:
    """On the error, as JSON, and on the span of the agent."""
    stop, said = stopped()
    decision = stop.decision
    assert decision is not None
    assert stop.outcome is Outcome.LOOP
    assert json.loads(json.dumps(stop.as_dict())) == {
        "outcome": "loop", "session": stop.session, "message": str(stop), "by": "policy",
        "reason": decision.reason, "detector": decision.detector, "decision_id": decision.id,
    }  # fmt: skip
    assert said == "loop"


def test_a_pause_that_nobody_ended_is_one() -> None:
    """The decision still says why; a spent budget is one too."""
    stop, said = stopped(max_action="pause")
    assert isinstance(stop, LoopGuardPaused)
    assert (stop.as_dict()["outcome"], stop.as_dict()["detector"]) == ("paused", "exact_repeat")
    assert said is None
    stop, said = stopped(budget_actions=2)
    assert (stop.outcome, said) == ("budget", "budget")


@pytest.mark.parametrize("by", ["anna", "application"])
def test_who_aborts_is_told_from_the_guard(by: str) -> None:
    """On the error that `turn()` raises, and on the span; code does so under its own name."""
    provider = provider_with(LoopGuardSpanProcessor(), ended := Ended())
    with pytest.raises(LoopGuardAbort) as told, turn("ends-5", tracer_provider=provider) as now:
        control.abort("ends-5", by=by)
        now.hint()
    found = told.value.as_dict()
    assert found["outcome"] == WHO[by]
    assert (found["by"], found["decision_id"]) == (by, None)
    said = [(one.attributes or {}).get("loopguard.outcome") for one in ended.spans]
    assert said == [WHO[by]]


WHO = {
    "anna": "aborted_by_person", "by hand": "aborted_by_person", "policy": "aborted",
    None: "aborted", "time limit": "unanswered", "application": "aborted_by_application",
}  # fmt: skip


@pytest.mark.parametrize(("by", "outcome"), WHO.items())
def test_who_aborted_without_a_decision(by: str | None, outcome: str) -> None:
    assert LoopGuardAbort("it is over", "key", by=by).outcome == outcome


FAMILIES = {
    "repetition": {"loop"},
    "exchange": {"loop"},
    "errors": {"failing", "loop"},
    "standstill": {"stalled", "loop"},
    "milestones": {"stalled", "failing"},
    "graph": {"loop", "stalled", "budget"},
    "text": {"loop", "stalled"},
}


def test_every_detector_has_an_outcome_of_its_family() -> None:
    """What finds errors or equal verdicts fails, what finds no progress stalls; a budget is one."""
    run = Judged()
    run.calls(*[call(args={"q": "x"}, outcome="none") for _ in range(9)])
    for detector in DETECTORS:
        outcome = outcome_of(replace(run.decisions[-1], detector=detector.name), None)
        of_family = FAMILIES.get(detector.family, set(Outcome))
        assert outcome in ({"failing"} if detector.name == "same_verdict" else of_family)
