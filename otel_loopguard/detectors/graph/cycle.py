"""Do the same nodes come back in the same order, and nothing new comes of it? (G1)"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Kind, Severity, Visit
from otel_loopguard.detectors.graph.runs import GraphRuns
from otel_loopguard.detectors.periods import Periods

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_ADVICE: Final = (
    "The graph goes round without getting anything new: give its next turn something else to work "
    "with, or leave the loop with what there is."
)


@dataclass(slots=True)
class _Turns:
    """The turns of one graph run; `seen` and `told` since something was not captured."""

    periods: Periods
    keys: deque[int]
    seen: int = 0
    told: int = 0


@dataclass(slots=True)
class _Needs:
    """What each period needs, with and without knowledge of what is new."""

    known: list[int] = field(default_factory=list[int])
    unseen: list[int] = field(default_factory=list[int])


class NodeCycle:
    """Finds cycles of nodes, or of agents, of any period to `graph_cycle_max_period` (16).

    Graphs are cyclic by nature (`agent`, `tools`, `agent`, …), so a cycle is one only while nothing
    new comes of it: any new state, call, answer, text or hand-over, any change of the world and any
    wait begins again. Then `graph_cycle_repeats` (5) turns are one, if each turn shows by a state,
    or by a call with its answer, that it was like those before; it leads to `graph_max_action`
    (ask) at most. Where that was not captured, `graph_unseen_repeats` (40) turns give a hint, and
    never more.

    Source: FEATURES G1, C3; `notes/dialects.md`, finding 8.
    """

    name = "node_cycle"
    family = "graph"
    takes = Visit
    __slots__ = ("_longest", "_most", "_needs", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._longest = settings.graph_cycle_max_period
        self._most = Action(settings.graph_max_action)
        periods = range(self._longest + 1)
        known, unseen = settings.graph_cycle_repeats, settings.graph_unseen_repeats
        self._needs = _Needs(
            [round((known - 1) * period) for period in periods],
            [round((max(known, unseen) - 1) * period) for period in periods],
        )
        self._runs: GraphRuns[_Turns] = GraphRuns(self._begin)

    def user_turn(self) -> None:
        """A user spoke: a graph that runs now, runs for something else."""
        self._runs.clear()

    def observe(self, visit: Visit) -> Detection | None:
        """Takes one visit; gives a detection once per turn of a cycle."""
        turns = self._runs.of(visit)
        turns.keys.append(visit.key)
        period = turns.periods.take(visit.place)
        if visit.moves:
            turns.periods.start_over()
            turns.seen = turns.told = 0
            return None
        if visit.unseen:
            turns.seen = turns.told = 0
        else:
            turns.seen += 1
            turns.told += visit.known
        if not period or not visit.home:
            return None
        known = self._needs.known[period]
        if turns.seen >= known and turns.told * period >= known:
            return self._known(visit, turns, period)
        if turns.periods.run(period) >= self._needs.unseen[period]:
            return self._unseen(visit, turns, period)
        return None

    def _begin(self) -> _Turns:
        return _Turns(Periods(self._needs.known), deque(maxlen=self._longest))

    def _known(self, visit: Visit, turns: _Turns, period: int) -> Detection:
        count, threshold = _turns(turns, period), self._needs.known[period] / period + 1
        return Detection(
            detector=self.name,
            reason="node_cycle",
            severity=Severity.CRITICAL if count >= 2 * threshold else Severity.WARNING,
            confidence=min(0.9, 0.7 + 0.02 * (count - threshold)),
            keys=frozenset(list(turns.keys)[-period:]),
            count=count,
            threshold=threshold,
            message=f"{_cycle(visit, period)} went round {count:.0f} times, and nothing new came "
            "of it",
            period=period,
            max_action=self._most,
            advice=_ADVICE,
        )

    def _unseen(self, visit: Visit, turns: _Turns, period: int) -> Detection:
        count, threshold = _turns(turns, period), self._needs.unseen[period] / period + 1
        return Detection(
            detector=self.name,
            reason="node_cycle_unseen",
            severity=Severity.WARNING,
            confidence=0.4,
            keys=frozenset(list(turns.keys)[-period:]),
            count=count,
            threshold=threshold,
            message=f"{_cycle(visit, period)} went round {count:.0f} times; whether anything new "
            "came of it was not captured",
            period=period,
            max_action=Action.HINT,
        )


def _turns(turns: _Turns, period: int) -> float:
    return round(turns.periods.run(period) / period + 1, 2)


def _cycle(visit: Visit, period: int) -> str:
    kind = "agent" if visit.kind is Kind.AGENT else "node"
    if period == 1:
        return f"the {kind} {visit.name!r}"
    return f"a cycle of {period} {kind}s with {visit.name!r} in it"
