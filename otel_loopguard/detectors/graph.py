"""Graph nodes and agents of a run that come back without progress."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action, Kind, NodeVisit
from otel_loopguard.detectors.base import BaseDetector, critical_if
from otel_loopguard.detectors.budget import at_limit
from otel_loopguard.detectors.counters import Periods

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings

T = TypeVar("T")


class _GraphDetector(BaseDetector, Generic[T]):
    """A detector with one state for each of the four graph runs that were visited last."""

    family = "graph"
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
        keep(self._runs, visit.graph, run, 4)
        return run


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

    def begun(self, visit: NodeVisit) -> dict[int, _Unchanged]:
        """What is counted in the graph run of a visit; nothing where that brought something."""
        counted = self.run_of(visit)
        if visit.moves or visit.unseen:
            counted.clear()
        return counted

    def judge(
        self, visit: NodeVisit, counted: dict[int, _Unchanged], threshold: int, says: str
    ) -> Detection | None:
        """A detection if what was counted most often comes to the threshold."""
        if not visit.home or not counted:
            return None
        most = max(counted.values(), key=lambda node: node.times)
        if most.times < threshold:
            return None
        message = f"{most.name!r} {says.format(most.times)}"
        keys = frozenset(node.key for node in (counted.values() if self.joint else (most,)))
        strongest = _weaker(self._settings.graph_max_action, Action.STEER)
        return self.found(message, most.times, threshold, keys, max_action=strongest)


class StateConvergence(_UnchangedDetector):
    """Counts the visits of a node that left its state as it was, while nothing else was new.

    The state is what the node gave (or got, where only that was captured) as a set of named values.
    It stops nothing, because a node may do its work where no state shows it.
    """

    name = "state_convergence"
    sure = (0.85, 0.6, 0.05)
    reason = "state_unchanged"
    advice = "Its state has settled: end with it, or change what the next turn is given."
    __slots__ = ()

    def observe(self, visit: NodeVisit) -> Detection | None:
        nodes = self.begun(visit)
        if visit.state is not None:
            before = nodes.pop(visit.key, None)
            count = before.times + 1 if before is not None and before.state == visit.state else 0
            nodes[visit.key] = _Unchanged(visit.key, visit.name, count, visit.state)
            if len(nodes) > 32:
                del nodes[next(iter(nodes))]
        says = "left its state unchanged {} times one after the other, and nothing else was new"
        return self.judge(visit, nodes, self._settings.tuning.graph.unchanged, says)


@dataclass(slots=True)
class _Turns:
    """The nodes of one graph run; `seen` and `known` since something was not captured."""

    periods: Periods
    seen: int = 0
    known: int = 0


class NodeCycle(_GraphDetector[_Turns]):
    """Finds cycles of nodes, or of agents, of any period, while nothing new comes of them.

    Graphs are cyclic by nature (`agent`, `tools`, `agent`, …), so anything new, any change of the
    world and any wait begins again. Each turn has to show by a state, or by a call with its answer,
    that it was like those before; where that was not captured many turns give a hint at most.
    """

    name = "node_cycle"
    __slots__ = ("_known", "_unseen")

    def reset(self) -> None:
        tuning = self._settings.tuning.graph
        periods = range(tuning.cycle_max_period + 1)
        known = tuning.cycle_repeats
        unseen = max(known, tuning.unseen_repeats)
        self._known = [round((known - 1) * period) for period in periods]
        self._unseen = [round((unseen - 1) * period) for period in periods]
        super().reset()

    def begin(self) -> _Turns:
        return _Turns(Periods(self._known))

    def observe(self, visit: NodeVisit) -> Detection | None:
        turns = self.run_of(visit)
        period = turns.periods.add(visit.place, visit.key)
        if visit.moves:
            turns.periods.restart()
            turns.seen = turns.known = 0
            return None
        if visit.unseen:
            turns.seen = turns.known = 0
        else:
            turns.seen += 1
            turns.known += visit.known
        if not period or not visit.home:
            return None
        needed = self._known[period]
        known = turns.seen >= needed and turns.known * period >= needed
        if not known:
            needed = self._unseen[period]
            if turns.periods.run(period) < needed:
                return None
        count = round(turns.periods.run(period) / period + 1, 2)
        threshold = needed / period + 1
        kind = "agent" if visit.kind is Kind.AGENT else "node"
        what = f"a cycle of {period} {kind}s with {visit.name!r} in it"
        if period == 1:
            what = f"the {kind} {visit.name!r}"
        keys = frozenset(turns.periods.labels(period))
        if not known:
            message = (
                f"{what} went round {count:.0f} times; whether anything new came of it was "
                "not captured"
            )
            return self.found(
                message,
                count,
                threshold,
                keys,
                confidence=0.4,
                reason="node_cycle_unseen",
                period=period,
            )
        message = f"{what} went round {count:.0f} times, and nothing new came of it"
        confidence = min(0.9, 0.7 + 0.02 * (count - threshold))
        severity = critical_if(count >= 2 * threshold)
        most = Action(self._settings.graph_max_action)
        advice = (
            "The graph goes round without getting anything new: give its next turn "
            "something else to work with, or leave the loop with what there is."
        )
        return self.found(
            message,
            count,
            threshold,
            keys,
            confidence=confidence,
            reason="node_cycle",
            severity=severity,
            period=period,
            max_action=most,
            advice=advice,
        )


@dataclass(slots=True)
class _Visited:
    """How often each node of a graph run was visited, and what was said of it."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    warned: bool = False
    over: bool = False


class GraphLimit(_GraphDetector[_Visited]):
    """Counts the visits of the most visited node of a graph run, against a limit that was set."""

    name = "graph_limit"
    sure = (1.0, 1.0, 0)
    max_action = Action.ABORT
    __slots__ = ()

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.graph_iterations > 0

    def begin(self) -> _Visited:
        return _Visited()

    def observe(self, visit: NodeVisit) -> Detection | None:
        settings = self._settings
        run = self.run_of(visit)
        count = run.counts.get(visit.key, 0) + 1
        if count > 1 or len(run.counts) < 64:
            run.counts[visit.key] = count
        limit = settings.graph_iterations
        warning = settings.tuning.graph.iterations_warning * limit
        over = count >= limit and not run.over
        if not over and (count < warning or run.warned):
            return None
        run.warned, run.over = True, run.over or over
        message = f"{visit.name!r} was visited {count} times in one run, the limit is {limit}"
        reason = "iteration_limit" if over else "iteration_warning"
        own = at_limit(settings, over=over)
        return self.found(
            message,
            count,
            limit if over else warning,
            visit.key,
            reason=reason,
            severity=critical_if(over),
            own=own.action,
            unanswered=own.unanswered,
        )


class NoProgress(_UnchangedDetector):
    """Counts the visits of a node that give the same since anything was new, whatever the way.

    New is what this run of the graph has not seen, or a change of the world; a wait, and what was
    not captured, begin again. It stops nothing.
    """

    name = "no_progress"
    joint = True
    sure = (0.85, 0.65, 0.03)
    reason = "no_progress"
    advice = (
        "Nothing new has come of the last iterations: say what is missing, or end with "
        "what there is."
    )
    __slots__ = ()

    def observe(self, visit: NodeVisit) -> Detection | None:
        places = self.begun(visit)
        if visit.idle:
            before = places.get(visit.place)
            if before is not None or len(places) < 64:
                count = 1 if before is None else before.times + 1
                places[visit.place] = _Unchanged(visit.key, visit.name, count)
        says = "was visited {} times without a new message, tool result or decision in between"
        return self.judge(visit, places, self._settings.tuning.graph.idle_iterations, says)


class RapidIteration(_GraphDetector[deque[tuple[int, int]]]):
    """Takes the mean time between the newest visits that surely gave nothing new.

    A fast graph is not stuck: only transitions to a node count that was there before and gives the
    same again. Without times nothing counts.
    """

    name = "rapid_iteration"
    sure = (0.6, 0.6, 0)
    reason = "rapid_iteration"
    __slots__ = ()

    def begin(self) -> deque[tuple[int, int]]:
        return deque(maxlen=self._settings.tuning.graph.rapid_transitions)

    def observe(self, visit: NodeVisit) -> Detection | None:
        gaps = self.run_of(visit)
        if visit.gap is None or not visit.idle or not visit.again:
            gaps.clear()
            return None
        gaps.append((visit.gap, visit.key))
        tuning = self._settings.tuning.graph
        mean = sum(gap for gap, _ in gaps) / len(gaps)
        if len(gaps) < tuning.rapid_transitions or mean >= tuning.rapid_ms * 1e6:
            return None
        message = (
            f"the last {len(gaps)} visits took {mean / 1e6:.1f} ms each on average, and "
            f"gave nothing new; the last one was of {visit.name!r}"
        )
        keys = frozenset(key for _, key in gaps)
        return self.found(message, len(gaps), tuning.rapid_transitions, keys)


def _weaker(action: str, most: Action) -> Action:
    return min(Action(action), most, key=lambda one: one.rank)
