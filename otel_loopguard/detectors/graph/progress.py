"""Does the graph go round with no new message, tool result or decision? (G3)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Visit
from otel_loopguard.detectors.graph.runs import GraphRuns

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_PLACES: Final = 64
_STEER: Final = Action.STEER


@dataclass(frozen=True, slots=True)
class _Visited:
    """How often a node gave the same since anything was new."""

    key: int
    name: str
    count: int


class NoProgress:
    """Counts the iterations of a graph since anything was new, whatever way it takes.

    An iteration is another visit of a node that gives the same as before. New is a state, call,
    answer, text or hand-over that this run of the graph has not seen, or a change of the world; a
    wait, and what was not captured, begin again. A detection from `graph_idle_iterations` (5). A
    hint, and then another way is asked for; it stops nothing.

    Source: FEATURES G3.
    """

    name = "no_progress"
    family = "graph"
    takes = Visit
    __slots__ = ("_least", "_most", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.graph_idle_iterations
        self._most = min(Action(settings.graph_max_action), _STEER, key=lambda one: one.rank)
        self._runs: GraphRuns[dict[int, _Visited]] = GraphRuns(dict[int, _Visited])

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._runs.clear()

    def observe(self, visit: Visit) -> Detection | None:
        """Takes one visit; gives a detection once per iteration without anything new."""
        places = self._runs.of(visit)
        if visit.moves or visit.unseen:
            places.clear()
        if visit.idle:
            before = places.get(visit.place)
            if before is not None or len(places) < _PLACES:
                count = 1 if before is None else before.count + 1
                places[visit.place] = _Visited(visit.key, visit.name, count)
        if not visit.home or not places:
            return None
        most = max(places.values(), key=lambda visited: visited.count)
        if most.count < self._least:
            return None
        return self._detection(most, frozenset(visited.key for visited in places.values()))

    def _detection(self, most: _Visited, keys: frozenset[int]) -> Detection:
        return Detection(
            detector=self.name,
            reason="no_progress",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.65 + 0.03 * (most.count - self._least)),
            keys=keys,
            count=most.count,
            threshold=self._least,
            message=f"{most.name!r} was visited {most.count} times without a new message, tool "
            "result or decision in between",
            max_action=self._most,
            advice="Nothing new has come of the last iterations: say what is missing, or end with "
            "what there is.",
        )
