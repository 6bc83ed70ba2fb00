"""The complexity of a plan, by the formula."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core.task import Task
from otel_loopguard.plans import complexity


def test_a_plan_worked_out_by_hand() -> None:
    """.3 x 3/30 + .25 x 2/10 + .2 x 2 x .1 + .15 x .5 + .1 x (mean deviation / mean)."""
    tasks = [
        Task("a", tool="read", priority=0.5, estimate_ms=1000),
        Task("b", tool="write", depends_on=("a",), estimate_ms=3000),
        Task("c", tool="read", depends_on=("b",), priority=0.25),
    ]
    found = complexity(tasks)
    assert (found.count, found.tools, found.dependencies) == pytest.approx((0.1, 0.2, 0.2))
    assert (found.priorities, found.durations) == pytest.approx((0.5, 0.5))
    assert found.score == pytest.approx(0.03 + 0.05 + 0.04 + 0.075 + 0.05)


def test_every_part_is_capped() -> None:
    """The highest score is 1."""
    before = tuple(str(each) for each in range(40))
    tasks = [
        Task(str(each), tool=str(each), depends_on=before[:each], priority=each,
             estimate_ms=10**6 if each == 39 else 1)
        for each in range(40)
    ]  # fmt: skip
    found = complexity(tasks)
    assert found.score == 1
    assert (found.count, found.tools, found.dependencies) == (1, 1, 1)
    assert (found.priorities, found.durations) == (1, 1)


@pytest.mark.parametrize(
    ("tasks", "score"),
    [
        ([], 0),
        ([Task("a")], 0.01),
        ([Task("a", estimate_ms=0), Task("b", estimate_ms=0)], 0.02),
        ([Task("a", agent="x"), Task("b", agent="y")], 0.02 + 0.05),
    ],
    ids=["nothing", "one", "no time", "agents"],
)
def test_small_plans(tasks: list[Task], score: float) -> None:
    """Nothing is divided by zero; an agent stands for a tool."""
    assert complexity(tasks).score == pytest.approx(score)


def test_every_number_is_a_setting() -> None:
    """Scales and weights."""
    tasks = [Task("a", priority=1), Task("b", priority=10, depends_on=("a",))]
    plans = {
        "priority_span": 18, "count_full": 4, "dependency_share": 0.5, "weight_count": 0.5,
        "weight_tools": 0, "weight_dependencies": 0.2, "weight_priorities": 0.3,
        "weight_durations": 0,
    }  # fmt: skip
    rule = Settings(tuning={"plans": plans})
    assert complexity(tasks, rule).score == pytest.approx(0.25 + 0.1 + 0.15)
