"""The cost view: what is spent from the onset to a decision, and after it."""

from __future__ import annotations

from typing import Any

from lab.costs import cost_rows, costs
from otel_loopguard.cli.evaluate import Judgement
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Run


def run(loop: bool | None, onset: int | None, tokens: int | None = 10) -> Run:
    steps = [Step(Kind.MODEL, tokens_out=tokens) for _ in range(20)]
    return Run("r", "s", "t", loop, onset, steps=steps)


def row(level: str, *about: tuple[Run, int | None, int | None]) -> dict[str, Any]:
    found = [
        cost
        for each, noticed, stopped in about
        for cost in costs(
            each, Judgement("g", "t", "s", each.loop, 20, each.onset_step, noticed, stopped)
        )
    ]
    return next(row for row in cost_rows(found) if row["level"] == level)


def test_a_run_that_is_stopped() -> None:
    """Steps and tokens up to the stop, with its own step, and all that came after it."""
    stopped = row("stopped", (run(True, 4), 6, 9))
    assert (stopped["n"], stopped["reached"]) == (1, 1)
    assert (stopped["median_steps"], stopped["steps_after"]) == (6, 10)
    assert (stopped["median_tokens"], stopped["tokens_after"]) == (60, 100)
    assert stopped["steps_share"] == stopped["tokens_share"] == 10 / 16
    assert row("noticed", (run(True, 4), 6, 9))["median_steps"] == 3


def test_a_run_that_is_not_stopped() -> None:
    """It counts in the whole, and nothing of it is saved."""
    both = row("stopped", (run(True, 4), 6, 9), (run(True, 4), 6, None))
    assert (both["n"], both["reached"], both["steps_after"]) == (2, 1, 10)
    assert both["steps_share"] == 10 / 32


def test_tokens_that_are_not_known() -> None:
    """Runs that do not say what they took are counted in steps only."""
    found = row("stopped", (run(True, 4, tokens=None), 6, 9))
    assert (found["steps_after"], found["tokens_known"]) == (10, 0)
    assert found["median_tokens"] is found["tokens_after"] is found["tokens_share"] is None


def test_a_decision_before_the_onset() -> None:
    """Nothing was spent on the loop yet; what is saved begins at the decision."""
    found = row("noticed", (run(True, 12), 3, None))
    assert (found["median_steps"], found["steps_after"]) == (0, 16)


def test_a_healthy_run_loses() -> None:
    """What a wrong stop would have cut off is told, and is no share of anything."""
    found = row("stopped", (run(False, None), 6, 9))
    assert (found["loops"], found["reached"], found["steps_after"]) == (0, 1, 10)
    assert found["median_steps"] is found["steps_share"] is None


def test_runs_that_say_nothing() -> None:
    """A run without a label, or stuck without an onset, has no cost."""
    for each in (run(None, 3), run(True, None)):
        judged = Judgement("g", "t", "s", each.loop, 20, each.onset_step, 3, 4)
        assert list(costs(each, judged)) == []
