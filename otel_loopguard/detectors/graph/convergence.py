"""Does a node give the same state again and again? (G2)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Visit
from otel_loopguard.detectors.graph.runs import GraphRuns

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_NODES: Final = 32
_STEER: Final = Action.STEER


@dataclass(frozen=True, slots=True)
class _Held:
    """What one node gave last, and for how many visits it did not change."""

    key: int
    name: str
    state: int
    count: int


class StateConvergence:
    """Counts the visits of a node that left its state as it was.

    The state is what the node gave, or what it got where that is all that was captured, as a set of
    named values: an entry added to a log that had it already leaves it unchanged. A detection from
    `graph_unchanged` (3) such visits one after the other, while nothing else was new either and
    all that happened was captured. A hint, and then another way is asked for; it stops nothing,
    because a node may do its work where no state shows it.

    Source: FEATURES G2.
    """

    name = "state_convergence"
    family = "graph"
    takes = Visit
    __slots__ = ("_least", "_most", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.graph_unchanged
        self._most = min(Action(settings.graph_max_action), _STEER, key=lambda one: one.rank)
        self._runs: GraphRuns[dict[int, _Held]] = GraphRuns(dict[int, _Held])

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._runs.clear()

    def observe(self, visit: Visit) -> Detection | None:
        """Takes one visit; gives a detection once per iteration that leaves the state as it was."""
        nodes = self._runs.of(visit)
        if visit.moves or visit.unseen:
            nodes.clear()
        if visit.state is not None:
            held = nodes.pop(visit.key, None)
            count = held.count + 1 if held is not None and held.state == visit.state else 0
            nodes[visit.key] = _Held(visit.key, visit.name, visit.state, count)
            if len(nodes) > _NODES:
                del nodes[next(iter(nodes))]
        if not visit.home or not nodes:
            return None
        most = max(nodes.values(), key=lambda held: held.count)
        return self._detection(most) if most.count >= self._least else None

    def _detection(self, most: _Held) -> Detection:
        return Detection(
            detector=self.name,
            reason="state_unchanged",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.05 * (most.count - self._least)),
            keys=frozenset({most.key}),
            count=most.count,
            threshold=self._least,
            message=f"{most.name!r} left its state unchanged {most.count} times one after the "
            "other, and nothing else was new",
            max_action=self._most,
            advice="Its state has settled: end with it, or change what the next turn is given.",
        )
