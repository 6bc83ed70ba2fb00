"""How complex a plan is, from 0 to 1 (A5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.planning.task import Task
    from otel_loopguard.settings.planning import PlanningSettings


@dataclass(frozen=True, slots=True)
class Complexity:
    """How complex a plan is; every part is 0 to 1, before its weight.

    Attributes:
        score: The weighted sum, 0 to 1.
        count: Tasks, of `plan_count_full` (30).
        tools: Different tools, of `plan_tools_full` (10).
        dependencies: Dependencies, `plan_dependency_share` (0.1) each.
        priorities: Highest priority less the lowest, of `plan_priority_span` (1).
        durations: Mean deviation of the estimates that are known, relative to their mean.
    """

    score: float
    count: float
    tools: float
    dependencies: float
    priorities: float
    durations: float


def complexity(tasks: Sequence[Task], settings: PlanningSettings | None = None) -> Complexity:
    """How complex a plan is.

    .3 count/30 + .25 distinct tools/10 + .2 dependencies (.1 each) + .15 priority spread + .1
    relative mean deviation of durations, each capped at 1. Source: FEATURES A5.

    Args:
        tasks: The tasks; they need not be sound. Where a task has no tool its agent counts as one.
        settings: Weights and scales; from the environment by default.
    """
    rule = Settings() if settings is None else settings
    worked = {task.tool or task.agent for task in tasks} - {None}
    edges = sum(len(task.depends_on) for task in tasks)
    parts = (
        min(1.0, len(tasks) / rule.plan_count_full),
        min(1.0, len(worked) / rule.plan_tools_full),
        min(1.0, edges * rule.plan_dependency_share),
        min(1.0, _spread(tasks) / rule.plan_priority_span),
        min(1.0, _deviation([one.estimate_ms for one in tasks if one.estimate_ms is not None])),
    )
    weights = (
        rule.plan_weight_count,
        rule.plan_weight_tools,
        rule.plan_weight_dependencies,
        rule.plan_weight_priorities,
        rule.plan_weight_durations,
    )
    score = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    return Complexity(min(1.0, round(score, 6)), *parts)


def _spread(tasks: Sequence[Task]) -> float:
    priorities = [task.priority for task in tasks]
    return max(priorities) - min(priorities) if priorities else 0.0


def _deviation(durations: Sequence[float]) -> float:
    """Mean distance from the mean, relative to it; 0 without durations."""
    if not durations:
        return 0.0
    mean = sum(durations) / len(durations)
    if mean <= 0:
        return 0.0
    return sum(abs(one - mean) for one in durations) / len(durations) / mean
