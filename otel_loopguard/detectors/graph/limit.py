"""How often has one run of a graph come back to the same node? (G5)"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Visit
from otel_loopguard.detectors.graph.runs import GraphRuns

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_NODES: Final = 64


@dataclass(slots=True)
class _Visited:
    """How often each node of a graph run was visited, and what was said of it."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    warned: bool = False
    over: bool = False


class GraphLimit:
    """Counts the iterations of a graph run: the visits of its most visited node.

    A verdict of its own at `graph_iterations` (50), once per run, with a warning at
    `graph_iterations_warning` (80 %) of them. A count says nothing about progress, so that there
    is no limit until one of these settings is set, and then both are only noted on the trace;
    `graph_limit_action` says what else follows at the limit, and then the warning is a hint.

    Source: FEATURES G5.
    """

    name = "graph_limit"
    family = "graph"
    takes = Visit
    __slots__ = ("_action", "_limit", "_on", "_runs", "_warning")

    def __init__(self, settings: Settings) -> None:
        self._on = settings.graph_limited
        self._limit = settings.graph_iterations
        self._warning = settings.graph_iterations_warning * self._limit
        self._action = Action(settings.graph_limit_action)
        self._runs: GraphRuns[_Visited] = GraphRuns(_Visited)

    def user_turn(self) -> None:
        """A user spoke: iterations are counted anew."""
        self._runs.clear()

    def observe(self, visit: Visit) -> Detection | None:
        """Takes one visit; a detection at the warning and at the limit, once each."""
        if not self._on:
            return None
        run = self._runs.of(visit)
        count = run.counts.get(visit.key, 0) + 1
        if count > 1 or len(run.counts) < _NODES:
            run.counts[visit.key] = count
        if count >= self._limit and not run.over:
            run.warned = run.over = True
            return self._detection(visit, count, self._limit, self._action)
        if count >= self._warning and not run.warned:
            run.warned = True
            mild = min(self._action, Action.HINT, key=lambda one: one.rank)
            return self._detection(visit, count, self._warning, mild)
        return None

    def _detection(self, visit: Visit, count: int, threshold: float, own: Action) -> Detection:
        over = threshold >= self._limit
        return Detection(
            detector=self.name,
            reason="iteration_limit" if over else "iteration_warning",
            severity=Severity.CRITICAL if over else Severity.WARNING,
            confidence=1.0,
            keys=frozenset({visit.key}),
            count=count,
            threshold=threshold,
            message=f"{visit.name!r} was visited {count} times in one run, the limit is "
            f"{self._limit}",
            own=own,
        )
