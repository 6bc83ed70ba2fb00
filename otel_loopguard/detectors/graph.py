"""Graph nodes and agents of a run that come back without progress."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from otel_loopguard.core import Action, Detection, Kind, NodeVisit, Severity
from otel_loopguard.detectors.counters import Periods

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_RUNS: Final = 4

T = TypeVar("T")


class GraphRuns(Generic[T]):
    """One value for each of the four graph runs that were visited last."""

    __slots__ = ("_make", "_runs")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._runs: OrderedDict[int, T] = OrderedDict()

    def of(self, visit: NodeVisit) -> T:
        """The value of the graph run that a visit belongs to."""
        found = self._runs.get(visit.graph)
        if found is None:
            found = self._runs[visit.graph] = self._make()
            if len(self._runs) > _RUNS:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(visit.graph)
        return found

    def clear(self) -> None:
        """Forgets all runs."""
        self._runs.clear()


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
    `tuning.graph.unchanged` (3) such visits one after the other, while nothing else was new either
    and all that happened was captured. A hint, and then another way is asked for; it stops nothing,
    because a node may do its work where no state shows it.

    Source: FEATURES G2.
    """

    name = "state_convergence"
    family = "graph"
    takes = NodeVisit
    __slots__ = ("_least", "_most", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.tuning.graph.unchanged
        self._most = min(Action(settings.graph_max_action), _STEER, key=lambda one: one.rank)
        self._runs: GraphRuns[dict[int, _Held]] = GraphRuns(dict[int, _Held])

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._runs.clear()

    def observe(self, visit: NodeVisit) -> Detection | None:
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
    """Finds cycles of nodes, or of agents, of any period to `tuning.graph.cycle_max_period` (16).

    Graphs are cyclic by nature (`agent`, `tools`, `agent`, …), so a cycle is one only while nothing
    new comes of it: any new state, call, answer, text or hand-over, any change of the world and any
    wait begins again. Then `tuning.graph.cycle_repeats` (5) turns are one, if each turn shows by a
    state, or by a call with its answer, that it was like those before; it leads to
    `graph_max_action` (ask) at most. Where that was not captured, `tuning.graph.unseen_repeats`
    (40) turns give a hint, and never more.

    Source: FEATURES G1, C3; `notes/dialects.md`, finding 8.
    """

    name = "node_cycle"
    family = "graph"
    takes = NodeVisit
    __slots__ = ("_longest", "_most", "_needs", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._longest = settings.tuning.graph.cycle_max_period
        self._most = Action(settings.graph_max_action)
        periods = range(self._longest + 1)
        known, unseen = settings.tuning.graph.cycle_repeats, settings.tuning.graph.unseen_repeats
        self._needs = _Needs(
            [round((known - 1) * period) for period in periods],
            [round((max(known, unseen) - 1) * period) for period in periods],
        )
        self._runs: GraphRuns[_Turns] = GraphRuns(self._begin)

    def user_turn(self) -> None:
        """A user spoke: a graph that runs now, runs for something else."""
        self._runs.clear()

    def observe(self, visit: NodeVisit) -> Detection | None:
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

    def _known(self, visit: NodeVisit, turns: _Turns, period: int) -> Detection:
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

    def _unseen(self, visit: NodeVisit, turns: _Turns, period: int) -> Detection:
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


def _cycle(visit: NodeVisit, period: int) -> str:
    kind = "agent" if visit.kind is Kind.AGENT else "node"
    if period == 1:
        return f"the {kind} {visit.name!r}"
    return f"a cycle of {period} {kind}s with {visit.name!r} in it"


_MAX_COUNTED_NODES: Final = 64


@dataclass(slots=True)
class _Visited:
    """How often each node of a graph run was visited, and what was said of it."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    warned: bool = False
    over: bool = False


class GraphLimit:
    """Counts the iterations of a graph run: the visits of its most visited node.

    A verdict of its own at `graph_iterations` (50), once per run, with a warning at
    `tuning.graph.iterations_warning` (80 %) of them. A count says nothing about progress, so that
    there is no limit until one of these settings is set, and then both are only noted on the trace;
    `graph_limit_action` says what else follows at the limit, and then the warning is a hint.

    Source: FEATURES G5.
    """

    name = "graph_limit"
    family = "graph"
    takes = NodeVisit
    __slots__ = ("_action", "_limit", "_on", "_runs", "_warning")

    def __init__(self, settings: Settings) -> None:
        self._on = settings.graph_limited
        self._limit = settings.graph_iterations
        self._warning = settings.tuning.graph.iterations_warning * self._limit
        self._action = Action(settings.graph_limit_action)
        self._runs: GraphRuns[_Visited] = GraphRuns(_Visited)

    def user_turn(self) -> None:
        """A user spoke: iterations are counted anew."""
        self._runs.clear()

    def observe(self, visit: NodeVisit) -> Detection | None:
        """Takes one visit; a detection at the warning and at the limit, once each."""
        if not self._on:
            return None
        run = self._runs.of(visit)
        count = run.counts.get(visit.key, 0) + 1
        if count > 1 or len(run.counts) < _MAX_COUNTED_NODES:
            run.counts[visit.key] = count
        if count >= self._limit and not run.over:
            run.warned = run.over = True
            return self._detection(visit, count, self._limit, self._action)
        if count >= self._warning and not run.warned:
            run.warned = True
            mild = min(self._action, Action.HINT, key=lambda one: one.rank)
            return self._detection(visit, count, self._warning, mild)
        return None

    def _detection(self, visit: NodeVisit, count: int, threshold: float, own: Action) -> Detection:
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


_PLACES: Final = 64


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """How often a node gave the same since anything was new."""

    key: int
    name: str
    count: int


class NoProgress:
    """Counts the iterations of a graph since anything was new, whatever way it takes.

    An iteration is another visit of a node that gives the same as before. New is a state, call,
    answer, text or hand-over that this run of the graph has not seen, or a change of the world; a
    wait, and what was not captured, begin again. A detection from `tuning.graph.idle_iterations`
    (5). A hint, and then another way is asked for; it stops nothing.

    Source: FEATURES G3.
    """

    name = "no_progress"
    family = "graph"
    takes = NodeVisit
    __slots__ = ("_least", "_most", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.tuning.graph.idle_iterations
        self._most = min(Action(settings.graph_max_action), _STEER, key=lambda one: one.rank)
        self._runs: GraphRuns[dict[int, _Unchanged]] = GraphRuns(dict[int, _Unchanged])

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._runs.clear()

    def observe(self, visit: NodeVisit) -> Detection | None:
        """Takes one visit; gives a detection once per iteration without anything new."""
        places = self._runs.of(visit)
        if visit.moves or visit.unseen:
            places.clear()
        if visit.idle:
            before = places.get(visit.place)
            if before is not None or len(places) < _PLACES:
                count = 1 if before is None else before.count + 1
                places[visit.place] = _Unchanged(visit.key, visit.name, count)
        if not visit.home or not places:
            return None
        most = max(places.values(), key=lambda visited: visited.count)
        if most.count < self._least:
            return None
        return self._detection(most, frozenset(visited.key for visited in places.values()))

    def _detection(self, most: _Unchanged, keys: frozenset[int]) -> Detection:
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


class RapidIteration:
    """Takes the mean time between visits, over those that gave what was given before.

    A fast graph is not stuck: only transitions count that lead to a node which was there before,
    gives the same again, and after which surely nothing is new. A detection if the newest
    `tuning.graph.rapid_transitions` (5) are such and took less than `tuning.graph.rapid_ms` (100)
    each on average. It leads to a hint at most. Without times nothing counts.

    Source: FEATURES G4.
    """

    name = "rapid_iteration"
    family = "graph"
    takes = NodeVisit
    __slots__ = ("_least", "_limit", "_runs")

    def __init__(self, settings: Settings) -> None:
        self._least = settings.tuning.graph.rapid_transitions
        self._limit = settings.tuning.graph.rapid_ms * 1e6
        self._runs: GraphRuns[deque[tuple[int, int]]] = GraphRuns(
            partial(deque[tuple[int, int]], maxlen=self._least)
        )

    def user_turn(self) -> None:
        """A user spoke: what is visited from now on is visited for something else."""
        self._runs.clear()

    def observe(self, visit: NodeVisit) -> Detection | None:
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
