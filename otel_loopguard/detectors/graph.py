"""Graph nodes and agents of a run that come back without progress."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action, Kind
from otel_loopguard.core.decision import rank
from otel_loopguard.core.evidence import NodeVisit
from otel_loopguard.detectors.base import BaseDetector, Periods, critical_if
from otel_loopguard.detectors.budget import at_limit

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings

T = TypeVar("T")

# Graphs inside of graphs go on in turn; four of them cover what frameworks nest.
_RUNS: Final = 4
# Nodes of one run that are counted: graphs are drawn by people, and have a dozen.
_NODES: Final = 64


class _GraphDetector(BaseDetector, Generic[T]):
    """A detector with one state for each of the four graph runs that were visited last."""

    takes = NodeVisit
    __slots__ = ("_runs",)

    def reset(self) -> None:
        self._runs: dict[int, T] = {}

    def begin(self) -> T:
        """The state of a new graph run."""
        raise NotImplementedError

    def run_of(self, visit: NodeVisit) -> T:
        """The state of the graph run that a visit belongs to."""
        run = self._runs.get(visit.graph)
        if run is None:
            run = self.begin()
        keep(self._runs, visit.graph, run, _RUNS)
        return run

    def furthest(self, stops: float, threshold: float) -> Action:
        """The strongest action: a hint, unless what says to stop comes to the threshold as well."""
        return Action.HINT if stops < threshold else Action(self._settings.tuning.graph.max_action)


@dataclass(slots=True)
class _Turns:
    """The nodes of one graph run; `seen` and `known` since something was not captured."""

    periods: Periods
    seen: int = 0
    known: int = 0


# As cycles of calls: a longer one is rather a program than a loop.
_LONGEST: Final = 16
# Where nothing tells what was new, the turns of long healthy runs are what a loop has to exceed.
_UNSEEN_TURNS: Final = 40.0


class NodeCycle(_GraphDetector[_Turns]):
    """Do the same nodes, or agents, return in the same order, with nothing new?

    Counts: turns of 1 to 16 nodes with equal states or calls, as these weigh; 40 of unknown ones.
    Leaves alone: anything new; changes; waits.
    Cannot see: what is new but not captured.
    """

    name = "node_cycle"
    __slots__ = ("_known", "_unseen")

    def reset(self) -> None:
        known, unseen = self.threshold, max(self.threshold, _UNSEEN_TURNS)
        self._known, self._unseen = (
            [round((turns - 1) * period) for period in range(_LONGEST + 1)]
            for turns in (known, unseen)
        )
        super().reset()

    def begin(self) -> _Turns:
        return _Turns(Periods(self._known))

    def observe(self, visit: NodeVisit) -> Detection | None:
        turns = self.run_of(visit)
        period = turns.periods.add(visit.place, visit.key)
        if visit.moves:
            turns.periods.restart()
        if visit.moves or visit.unseen:
            turns.seen = turns.known = 0
        else:
            turns.seen += 1
            turns.known += visit.known
        if visit.moves or not period or not visit.home:
            return None
        needed, ran = self._known[period], turns.periods.run(period)
        known = turns.seen * visit.hint_weight >= needed and turns.known * period >= needed
        if not known:
            needed = self._unseen[period]
            if ran < needed:
                return None
        count, threshold = round(ran / period + 1, 2), needed / period + 1
        kind = "agent" if visit.kind is Kind.AGENT else "node"
        what = f"a cycle of {period} {kind}s with {visit.name!r} in it"
        if period == 1:
            what = f"the {kind} {visit.name!r}"
        keys = frozenset(turns.periods.labels(period))
        if not known:
            return self.found(
                "node_cycle_unseen", count, threshold, keys, what=what, period=period,
                confidence=0.4,
            )  # fmt: skip
        return self.found(
            "node_cycle", count, threshold, keys, what=what, period=period,
            severity=critical_if(count >= 2 * threshold),
            max_action=self.furthest(turns.seen * visit.stop_weight, needed),
        )  # fmt: skip


class _Unchanged(NamedTuple):
    """For how many visits a node gave the same."""

    key: int
    name: str
    times: int
    state: int | None = None


class _UnchangedDetector(_GraphDetector[dict[int, _Unchanged]]):
    """Speaks of the node that gave the same most often, where a stretch without news came round.

    The loop is that node, or `joint`, all that are counted.
    """

    joint: ClassVar[bool] = False
    __slots__ = ()

    def begin(self) -> dict[int, _Unchanged]:
        return {}

    def count(self, visit: NodeVisit, counted: dict[int, _Unchanged]) -> None:
        """Counts one visit."""
        raise NotImplementedError

    def observe(self, visit: NodeVisit) -> Detection | None:
        counted = self.run_of(visit)
        if visit.moves or visit.unseen:
            counted.clear()
        self.count(visit, counted)
        if not visit.home or not counted:
            return None
        most = max(counted.values(), key=lambda node: node.times)
        if most.times * visit.hint_weight < self.threshold:
            return None
        keys = frozenset(node.key for node in (counted.values() if self.joint else (most,)))
        allowed = self.furthest(most.times * visit.stop_weight, self.threshold), Action.STEER
        return self.found(
            self.rules[0], most.times, self.threshold, keys, name=most.name,
            max_action=min(allowed, key=rank),
        )  # fmt: skip


class StateConvergence(_UnchangedDetector):
    """Does a node leave its state unchanged again and again?

    Counts: visits in a row that gave equal values, with nothing else new.
    Leaves alone: anything new; changes; waits.
    Cannot see: work that no state shows.
    """

    name = "state_convergence"
    __slots__ = ()

    def count(self, visit: NodeVisit, counted: dict[int, _Unchanged]) -> None:
        if visit.state is not None:
            before = counted.get(visit.key)
            times = before.times + 1 if before is not None and before.state == visit.state else 0
            node = _Unchanged(visit.key, visit.name, times, visit.state)
            keep(counted, visit.key, node, _NODES)


class NoProgress(_UnchangedDetector):
    """Does the graph go on with no new message, tool result or decision?

    Counts: visits of a node with the same result, on whatever path.
    Leaves alone: anything new; changes; waits.
    Cannot see: work that no state or call shows.
    """

    name = "no_progress"
    joint = True
    __slots__ = ()

    def count(self, visit: NodeVisit, counted: dict[int, _Unchanged]) -> None:
        before = counted.get(visit.place)
        if visit.idle and (before is not None or len(counted) < _NODES):
            times = 1 if before is None else before.times + 1
            counted[visit.place] = _Unchanged(visit.key, visit.name, times)


# Fewer gaps are one burst, as of nodes that a graph visits to route.
_GAPS: Final = 5


class RapidIteration(_GraphDetector[deque[tuple[int, int]]]):
    """Does the graph spin faster than any work could be done?

    Counts: five transitions to known nodes with known results, by their mean time.
    Leaves alone: fast graphs that bring anything new.
    Cannot see: visits without times.
    """

    name = "rapid_iteration"
    __slots__ = ()

    def begin(self) -> deque[tuple[int, int]]:
        return deque(maxlen=_GAPS)

    def observe(self, visit: NodeVisit) -> Detection | None:
        gaps = self.run_of(visit)
        if visit.gap is None or not visit.idle or not visit.again:
            gaps.clear()
            return None
        gaps.append((visit.gap, visit.key))
        mean_ms = sum(gap for gap, _ in gaps) / len(gaps) / 1e6
        if len(gaps) < _GAPS or mean_ms >= self.threshold:
            return None
        return self.found(
            "rapid_iteration", len(gaps), _GAPS, frozenset(key for _, key in gaps),
            mean_ms=mean_ms, name=visit.name,
        )  # fmt: skip


@dataclass(slots=True)
class _Visited:
    """Visits per node of a graph run, and what was reported of them."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    warned: bool = False
    over: bool = False


class GraphLimit(_GraphDetector[_Visited]):
    """How often has one run returned to the same node?

    Counts: visits of each node.
    Leaves alone: everything, until a limit is set.
    Cannot see: nodes that make no spans.
    """

    name = "graph_limit"
    __slots__ = ()

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.graph_iterations > 0

    def begin(self) -> _Visited:
        return _Visited()

    def observe(self, visit: NodeVisit) -> Detection | None:
        settings, run = self._settings, self.run_of(visit)
        count = run.counts.get(visit.key, 0) + 1
        if count > 1 or len(run.counts) < _NODES:
            run.counts[visit.key] = count
        limit = settings.graph_iterations
        warning = settings.tuning.budget.warning * limit
        over = count >= limit and not run.over
        if not over and (count < warning or run.warned):
            return None
        run.warned, run.over = True, run.over or over
        return self.found(
            "iteration_limit" if over else "iteration_warning", count, limit if over else warning,
            visit.key, name=visit.name, limit=limit, severity=critical_if(over),
            **at_limit(settings, over=over),
        )  # fmt: skip
