"""The guard on the labelled runs of real agents, also where spans carry less or more than that.

These are bounds, not the figures themselves (docs/evaluation.md has those): they hold with room to
spare, so that they catch a rule that hurts, and not the last run.
"""

from __future__ import annotations

import os
import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.recordings import Recording, Run, replay_run

TRACES = Path(__file__).resolve().parents[1].parent / "shared" / "traces"
SOURCES = "trail magentic captainagent sentinel miniswe taubench intercode sweagent".split()


def as_recorded(step: Step, dice: random.Random) -> None:
    """Nothing is changed."""


def without_outcomes(step: Step, dice: random.Random) -> None:
    """Instrumentations leave results out by default."""
    step.outcome = None


def without_arguments(step: Step, dice: random.Random) -> None:
    """Some leave the arguments out."""
    step.args = None


def names_only(step: Step, dice: random.Random) -> None:
    """And some give nothing but names."""
    step.args = step.outcome = step.error_text = None


def with_volatile_values(step: Step, dice: random.Random) -> None:
    """A fresh id in all arguments, a clock before and a duration behind every outcome."""
    if isinstance(step.args, dict):
        step.args = {**step.args, "request_id": str(uuid.UUID(int=dice.getrandbits(128)))}
    if isinstance(step.outcome, str):
        clock = f"10:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        step.outcome = f"{clock} {step.outcome} (took {dice.randrange(900)} ms)"
    if step.error_text is not None and isinstance(step.outcome, str):
        step.error_text = step.outcome


def judged(change: Callable[[Step, random.Random], None]) -> Counter[str]:
    """Runs, noticed and stopped, by healthy and stuck."""
    if not TRACES.is_dir():
        reason = f"the labelled runs are not at {TRACES}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    found: Counter[str] = Counter()
    dice = random.Random(7)
    for source in SOURCES:
        for run in Recording(str(TRACES / f"{source}.jsonl.gz"), lambda *_: None):
            assert isinstance(run, Run)
            if run.loop is None:
                continue
            for step in run.steps:
                if step.kind is Kind.TOOL:
                    change(step, dice)
            decisions = decided(run)
            kind = "stuck" if run.loop else "healthy"
            found[kind] += 1
            found[f"{kind} noticed"] += bool(decisions)
            found[f"{kind} stopped"] += any(one.action.stops for one in decisions)
    return found


def decided(run: Run) -> list[Decision]:
    decisions: list[Decision] = []
    guard = LoopGuard(
        Settings(), clock="replay", on_decision=lambda _, decision: decisions.append(decision)
    )
    replay_run(guard, run)
    guard.shutdown()
    return decisions


@pytest.mark.parametrize(
    "change",
    [as_recorded, without_outcomes, without_arguments, names_only, with_volatile_values],
    ids=lambda change: change.__name__,
)
def test_no_healthy_run_is_stopped_and_few_are_noticed(
    change: Callable[[Step, random.Random], None],
) -> None:
    """Whatever the spans carry: of 481 healthy runs none is stopped, at most 15 get a hint."""
    found = judged(change)
    assert found["healthy"] == 481
    assert found["healthy stopped"] == 0
    assert found["healthy noticed"] <= 15


def test_volatile_values_hide_next_to_nothing() -> None:
    """With clocks, durations and request ids everywhere nearly the same loops are noticed."""
    plain, volatile = judged(as_recorded), judged(with_volatile_values)
    assert plain["stuck noticed"] >= 80
    assert volatile["stuck noticed"] >= 0.9 * plain["stuck noticed"]
