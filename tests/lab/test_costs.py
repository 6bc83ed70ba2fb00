"""The cost view: what is spent from the onset to a decision, and after it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.costs import Cost, cost_rows, costs
from otel_loopguard.cli.evaluate import Judgement
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Run


def run(loop: bool | None, onset: int | None, tokens: int | None = 10) -> Run:
    steps = [Step(Kind.MODEL, tokens_out=tokens) for _ in range(20)]
    return Run("r", "s", "t", loop, onset, steps=steps)


@pytest.mark.parametrize(
    ("each", "level", "noticed", "stopped", "said"),
    [
        pytest.param(
            run(True, 4), "stopped", 6, 9,
            {"median_steps": 6, "steps_after": 10, "steps_share": 10 / 16, "tokens_share": 10 / 16,
             "median_tokens": 60, "tokens_after": 100},
            id="stopped, with its own step",
        ),
        pytest.param(run(True, 4), "noticed", 6, 9, {"median_steps": 3}, id="noticed"),
        pytest.param(
            run(True, 4, tokens=None), "stopped", 6, 9,
            {"steps_after": 10, "tokens_known": 0, "median_tokens": None, "tokens_after": None},
            id="tokens not known",
        ),
        pytest.param(
            run(True, 12), "noticed", 3, None, {"median_steps": 0, "steps_after": 16},
            id="before the onset",
        ),
        pytest.param(
            run(False, None), "stopped", 6, 9,
            {"loops": 0, "steps_after": 10, "median_steps": None, "steps_share": None},
            id="a healthy run loses",
        ),
    ],
)  # fmt: skip
def test_what_a_run_spends_up_to_a_decision_and_after_it(
    each: Run, level: str, noticed: int | None, stopped: int | None, said: dict[str, Any]
) -> None:
    found = next(row for row in cost_rows(of(each, noticed, stopped)) if row["level"] == level)
    wanted = {"reached": 1, "loops": 1, **said}
    assert {name: found[name] for name in wanted} == wanted


def of(each: Run, noticed: int | None, stopped: int | None) -> list[Cost]:
    judged = Judgement("t", "s", each.loop, 20, each.onset_step, noticed, stopped)
    return list(costs(each, judged))


def test_a_run_that_is_not_stopped() -> None:
    """It counts in the whole, and nothing of it is saved."""
    both = [*of(run(True, 4), 6, 9), *of(run(True, 4), 6, None)]
    row = next(row for row in cost_rows(both) if row["level"] == "stopped")
    assert (row["n"], row["reached"], row["steps_after"]) == (2, 1, 10)
    assert row["steps_share"] == 10 / 32


def test_runs_that_say_nothing() -> None:
    """A run without a label, or stuck without an onset, has no cost."""
    assert [*of(run(None, 3), 3, 4), *of(run(True, None), 3, 4)] == []
