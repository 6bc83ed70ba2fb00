"""Does the graph spin, faster than any work could be, with nothing new? (G4)"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from otel_loopguard.core import Action, Detection, Severity, Visit
from otel_loopguard.detectors.graph.runs import GraphRuns

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


class RapidIteration:
    """Takes the mean time between visits, over those that gave what was given before.

    A fast graph is not stuck: only transitions count that lead to a node which was there before,
    gives the same again, and after which surely nothing is new. A detection if the newest
    `graph_rapid_transitions` (5) are such and took less than `graph_rapid_ms` (100) each on
    average. It leads to a hint at most. Without times nothing counts.

    Source: FEATURES G4.
    """

    name = "rapid_iteration"
    family = "graph"
    takes = Visit
    __slots__ = ("_least", "_limit", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.graph_rapid_transitions
        self._limit = settings.graph_rapid_ms * 1e6
        self._runs: GraphRuns[deque[tuple[int, int]]] = GraphRuns(
            partial(deque[tuple[int, int]], maxlen=self._least)
        )

    def user_turn(self) -> None:
        """A user spoke: what is visited from now on is visited for something else."""
        self._runs.clear()

    def observe(self, visit: Visit) -> Detection | None:
        """Takes one visit; gives a detection while the graph spins."""
        gaps = self._runs.of(visit)
        if visit.gap is None or not visit.idle or not visit.again:
            gaps.clear()
            return None
        gaps.append((visit.gap, visit.key))
        mean = sum(gap for gap, _ in gaps) / len(gaps)
        if len(gaps) < self._least or mean >= self._limit:
            return None
        return Detection(
            detector=self.name,
            reason="rapid_iteration",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=frozenset(key for _, key in gaps),
            count=len(gaps),
            threshold=self._least,
            message=f"the last {len(gaps)} visits took {mean / 1e6:.1f} ms each on average, and "
            f"gave nothing new; the last one was of {visit.name!r}",
            max_action=Action.HINT,
        )
