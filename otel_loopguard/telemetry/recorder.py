"""Counts what a guard does, and reports it as metrics.

All that is counted is counted in plain tables, and read when a reader collects: nothing of an SDK
runs on the agent's thread, counters are there with 0 before anything happened, and a provider that
is set later misses nothing.

Source: FEATURES A10, C15, E14, O3.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from opentelemetry.metrics import Observation, get_meter, get_meter_provider

from otel_loopguard import semconv
from otel_loopguard._util.errors import attempt, hook, swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action, Choice, Kind
from otel_loopguard.telemetry.events import SpanRef, context_of, saved
from otel_loopguard.telemetry.metrics import AGENT, METRICS, OPERATION, SYSTEM, Metric
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.core.report import Happening, Meaning
    from otel_loopguard.execution.admission import AcceptanceCounts, Admissions
    from otel_loopguard.execution.latency import Estimate
    from otel_loopguard.resilience.registry import ResilienceRegistry
    from otel_loopguard.sessions import Session, SessionRegistry
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.stats import DecisionIndex
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.span_annotator import SpanAnnotator

_FIRST: Final = 64


class Sampling:
    """Samples the first 64, then one of so many. Takes no lock: a lost count does no harm."""

    __slots__ = ("_every", "_first", "_left")

    def __init__(self, every: int) -> None:
        self._every = every
        self._first = _FIRST
        self._left = 1

    def hit(self) -> bool:
        """Whether this one is to be looked at."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._first > 0:
            self._first -= 1
            self._left = 1
        else:
            self._left = self._every
        return True


UNKNOWN: Final = "unknown"
OTHER: Final = "other"
_LONGEST: Final = 200


class CardinalityLimit:
    """The first so many different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def of(self, name: str | None) -> str:
        """A name as it goes on a metric: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[:_LONGEST]
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = None
        return name

    @property
    def all(self) -> tuple[str, ...]:
        """The names that are known, in the order in which they came."""
        return tuple(self._known)


Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""

_MOST: Final = 1800
"""Different attributes of one metric; the SDK gives up its own order past 2000."""


class Counts:
    """Counts of one guard, or of guards that are gone. Thread-safe.

    Past 1800 different attributes of a metric, what is new is counted as `other` throughout.
    """

    def __init__(self) -> None:
        # Re-entrant: a finalizer may end a span, and be counted, while it is held.
        self._lock = new_lock()
        self._counts: dict[str, dict[Key, float]] = {}

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted is the parent's."""
        self._lock = new_lock()
        self._counts = {}

    def add(self, metric: str, key: Key, amount: float = 1) -> None:
        """Counts."""
        with self._lock:
            counts = self._counts.get(metric)
            if counts is None:
                counts = self._counts[metric] = {}
            if key not in counts and len(counts) >= _MOST:
                key = tuple(OTHER if value else value for value in key)
            counts[key] = counts.get(key, 0) + amount

    def of(self, metric: str) -> Mapping[Key, float]:
        """What was counted of a metric, as it is now."""
        with self._lock:
            return dict(self._counts.get(metric, ()))

    def take(self, metric: str, counts: Mapping[Key, float]) -> None:
        """Adds what somebody else counted."""
        for key, amount in counts.items():
            self.add(metric, key, amount)


_ASKING = (Action.ASK, Action.PAUSE)


class Zeros:
    """The attributes that metrics have from the start, each with 0."""

    def __init__(self, detectors: Sequence[str], agents: int, *, shadow: bool) -> None:
        self._detectors = detectors
        self._agents = agents
        self._shadow = "true" if shadow else ""
        unknown = {(name, UNKNOWN): 0 for name in detectors}
        self._fixed: dict[str, Mapping[Key, float]] = {
            semconv.METRIC_DECISIONS: {
                (action.value, name, UNKNOWN, self._shadow): 0
                for action in Action
                for name in detectors
            },
            semconv.METRIC_DETECTIONS: unknown,
            semconv.METRIC_LOOPS_DETECTED: unknown,
            semconv.METRIC_LOOPS_PREVENTED: unknown,
            semconv.METRIC_SAVED_TOKENS: unknown,
            semconv.METRIC_SAVED_TIME: unknown,
            semconv.METRIC_ESCALATIONS: {(action.value, UNKNOWN): 0 for action in _ASKING},
            semconv.METRIC_CYCLES: _each("found", "intervened", "escalated", "resolved"),
            semconv.METRIC_EVENTS: _each("", "queue_full", "failure"),
            semconv.METRIC_EXECUTION_CHOICES: _each(*(choice.value for choice in Choice)),
            semconv.METRIC_EXPORTER_EXPORTED: _each("", "queue_full", "failure", "raised"),
            semconv.METRIC_EXPORTER_SPANS: _each("", "failure", "raised"),
            semconv.METRIC_STRATEGY_SWITCHES: _each(UNKNOWN),
            semconv.METRIC_RUN_RETRIES: {(): 0},
            semconv.METRIC_RUN_DEGRADED_STEPS: {(): 0},
            semconv.METRIC_RUN_COMPACTIONS: {(): 0},
            semconv.METRIC_RUN_MISSING_DEPENDENCIES: {(): 0},
        }

    def of(self, metric: str, agents: Sequence[str]) -> Mapping[Key, float]:
        """What a metric has from the start."""
        fixed = self._fixed.get(metric, {})
        if metric != semconv.METRIC_DECISIONS:
            return fixed
        aborts = {
            (Action.ABORT.value, name, agent, self._shadow): 0
            for agent in agents[: self._agents]
            for name in self._detectors
        }
        return {**fixed, **aborts}


def _each(*values: str) -> Mapping[Key, float]:
    return {(value,): 0 for value in values}


_Values = Mapping["Key", float]

_NOTHING: Final[_Values] = {}
_STATES: Final = {
    "healthy": "available",
    "slow": "degraded",
    "full": "degraded",
    "read_only": "degraded",
    "down": "unavailable",
}
_RESOURCES: Final = ("cpu", "memory", "io_wait")
_COMPONENT: Final = ("loopguard", "loopguard_span_exporter")


@dataclass(frozen=True)
class State:
    """What of a guard is looked at when metrics are collected, on the thread of their reader.

    Attributes:
        opens: Open spans.
        sessions: Sessions.
        ledger: What people said of decisions.
        marks: Decisions that wait for an exporter.
        admissions: What is answered before a call runs.
        remedies: Breakers, if there are any.
        writer: Writes to the store, if there is one.
        capacity: Writes that may wait for the store.
    """

    opens: ActiveSpans
    sessions: SessionRegistry
    ledger: DecisionIndex
    marks: SpanAnnotator
    admissions: Admissions
    remedies: ResilienceRegistry | None
    writer: Writer | None
    capacity: int

    def active(self, agents: CardinalityLimit) -> _Values:
        """Sessions with an open span, by agent; 0 for agents that have none."""
        return self._by_agent(agents, stalled=False)

    def stalled(self, agents: CardinalityLimit) -> _Values:
        """Sessions in which something runs past its limit, by agent; 0 for all other agents."""
        return self._by_agent(agents, stalled=True)

    def known(self) -> _Values:
        """Sessions in memory."""
        return {(): len(self.sessions)}

    def paused(self) -> _Values:
        """Sessions that are paused."""
        return {(): sum(session.flag.held for session in self.sessions.all)}

    def open(self) -> _Values:
        """Open spans."""
        return {(): len(self.opens)}

    def breakers(self, tools: CardinalityLimit, agents: CardinalityLimit) -> _Values:
        """Breakers: 1 where one is open."""
        if self.remedies is None:
            return _NOTHING
        found: dict[Key, float] = {}
        for name, of, is_open in self.remedies.breakers.all:
            key = (tools.of(name), "") if of == "tool" else ("", agents.of(name))
            found[key] = found.get(key, 0) + is_open
        return found

    def resources(self) -> _Values:
        """Mean and peak use of the machine, in percent."""
        use = self.admissions.resources.use()
        return {
            (name, statistic): getattr(use[name], statistic)
            for name in _RESOURCES
            if name in use
            for statistic in ("mean", "peak")
        }

    def hit_rate(self) -> _Values:
        """Share of the estimates that rest on past calls, in percent; nothing before the first."""
        estimates = self.admissions.counts.estimates
        known = sum(estimates[source] for source in ("profile", "blend"))
        total = estimates.total()
        return {(): 100 * known / total} if total else _NOTHING

    def feedback(self) -> _Values:
        """What people said of decisions."""
        told = self.ledger.told
        return {("confirmed",): told[False], ("false_alarm",): told[True]}

    def store(self) -> _Values:
        """The state that the store is in."""
        if self.writer is None:
            return _NOTHING
        now = _STATES[self.writer.state]
        return {(state,): int(state == now) for state in dict.fromkeys(_STATES.values())}

    def store_queue(self) -> _Values:
        """Writes that wait."""
        return _NOTHING if self.writer is None else {(): self.writer.standing.waiting}

    def store_capacity(self) -> _Values:
        """Writes that may wait."""
        return _NOTHING if self.writer is None else {(): self.capacity}

    def exporter_queue(self) -> _Values:
        """Decisions that wait for an exporter."""
        return {_COMPONENT: self.marks.waiting} if self.marks.written else _NOTHING

    def exporter_capacity(self) -> _Values:
        """Decisions that may wait."""
        return {_COMPONENT: self.marks.capacity} if self.marks.written else _NOTHING

    def _by_agent(self, agents: CardinalityLimit, *, stalled: bool) -> _Values:
        found: dict[object, str | None] = {}
        for opened in list(self.opens):
            if stalled and not _is_stalled(opened):
                continue
            session = opened.session or self.sessions.of_trace(opened.view.trace_id)
            place = opened.view.trace_id if session is None else id(session)
            found[place] = found.get(place) or opened.agent or _named(opened)
        counts = Counter(agents.of(agent) for agent in found.values())
        return {(agent,): counts[agent] for agent in {UNKNOWN, *agents.all, *counts}}


def _is_stalled(opened: ActiveSpan) -> bool:
    """Whether it, or the run that it begins, is past a limit; near one is not past it."""
    said = opened.said or ()
    run = opened.run
    if run is not None and run.opened is opened:
        # What waited for long and goes on is not idle any more.
        said = {*said, *(run.said - {"idle"} if run.busy else run.said)}
    return any(not code.endswith("_near") for code in said)


def _named(opened: ActiveSpan) -> str | None:
    """The agent that a span names itself, where no span above it does."""
    name = opened.view.attributes.get(AGENT)
    return name if isinstance(name, str) else None


_Totals = Mapping[Key, float]


class Totals:
    """Counts that were made for metrics, and those that stand elsewhere. Holds no guard."""

    def __init__(self, counts: Counts, faults: InternalErrors) -> None:
        self._counts = counts
        self._faults = faults
        self._tallies: AcceptanceCounts | None = None
        self._marks: SpanAnnotator | None = None
        self._writer: Writer | None = None
        self._elsewhere: dict[str, Callable[[], _Totals]] = {
            semconv.METRIC_FAULTS: self._swallowed,
            semconv.METRIC_EXECUTION_CHOICES: self._choices,
            semconv.METRIC_EXECUTION_ANSWERS: self._answers,
            semconv.METRIC_ESTIMATES: self._estimates,
            semconv.METRIC_STORE_WRITES: self._writes,
            semconv.METRIC_STORE_RETRIES: self._retries,
        }

    def watch(self, state: State) -> None:
        """Takes where the counts of a guard stand."""
        self._tallies = state.admissions.counts
        self._marks = state.marks
        self._writer = state.writer

    def __call__(self, metric: str) -> _Totals:
        """What was counted of a metric so far."""
        elsewhere = self._elsewhere.get(metric)
        if elsewhere is not None:
            return elsewhere()
        found = self._counts.of(metric)
        if metric == semconv.METRIC_EXPORTER_EXPORTED and self._marks is not None:
            return {**found, ("queue_full",): self._marks.dropped}
        return found

    def _swallowed(self) -> _Totals:
        found: dict[Key, float] = {}
        for kind, count in tuple(self._faults.counts.items()):
            place, _, error = kind.rpartition(":")
            found[place or kind, error if place else ""] = count
        return found

    def _choices(self) -> _Totals:
        tallies = self._tallies
        return {} if tallies is None else {(one.value,): n for one, n in tallies.choices.items()}

    def _answers(self) -> _Totals:
        tallies = self._tallies
        return {} if tallies is None else dict(tallies.answers)

    def _estimates(self) -> _Totals:
        tallies = self._tallies
        return {} if tallies is None else {(one,): n for one, n in tallies.estimates.items()}

    def _writes(self) -> _Totals:
        if self._writer is None:
            return {}
        now = self._writer.standing
        return {("",): now.stored, ("dropped",): now.dropped, ("refused",): now.refused}

    def _retries(self) -> _Totals:
        return {} if self._writer is None else {(): self._writer.standing.retries}


_NAME: Final = "otel_loopguard"
_KEPT: Final = 4096

ReadTotals = Callable[[str], Mapping[Key, float]]
"""What was counted of a metric so far, of somebody who may be gone by now."""


class Value(NamedTuple):
    """A value of a histogram.

    Attributes:
        metric: Name of the metric.
        value: The value, in its unit.
        attributes: Its attributes.
        place: The span that it was measured at, for an exemplar; None for none.
    """

    metric: str
    value: float
    attributes: Mapping[str, str]
    place: SpanRef | None = None


class Teller(Protocol):
    """Somebody who has something to tell of most metrics: the telemetry of a guard."""

    @property
    def faults(self) -> InternalErrors:
        """Where faults are counted."""
        ...

    def told(self, metric: str) -> Mapping[Key, float]:
        """What it has to say of a metric now, by values of its attributes."""
        ...


class Instruments:
    """What all guards of one meter provider have to say, added up.

    Guards are held weakly; what one has counted stays when it is gone, as counters go up only.
    """

    def __init__(self, provider: MeterProvider | None, faults: InternalErrors) -> None:
        self._tellers: weakref.WeakSet[Teller] = weakref.WeakSet()
        self._gone = Counts()
        self._lock = new_lock()
        self._faults = faults
        self._left: deque[ReadTotals] = deque()
        self._values: deque[Value] = deque(maxlen=_KEPT)
        self._histograms: dict[str, Histogram] = {}
        with swallow(faults, "telemetry.meter"):
            self._make(provider, faults)
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock is made anew, and others' counts are the parent's."""
        self._lock = new_lock()
        self._gone.forked()
        self._values.clear()

    def join(self, teller: Teller, totals: ReadTotals) -> None:
        """Takes a guard in."""
        with self._lock:
            self._tellers.add(teller)
        # Kept by the next reader: here, in a weak reference's callback, no lock may be taken.
        weakref.finalize(teller, self._left.append, totals).atexit = False

    def keep(self, value: Value) -> None:
        """Keeps a value of a histogram until a reader collects; the newest 4096."""
        self._values.append(value)

    def observe(self, metric: Metric) -> list[Observation]:
        """What a reader gets of a metric now."""
        self._record()
        with self._lock:
            tellers = list(self._tellers)
            while self._left:
                self._keep(self._left.popleft())
        found = dict(self._gone.of(metric.name))
        for teller in tellers:
            told = attempt(teller.faults, "telemetry.observe", teller.told, metric.name) or {}
            for key, value in told.items():
                known = found.get(key)
                # A share of one guard is no part of that of two: the higher one is told.
                merged = max if metric.type == "gauge" else _sum
                found[key] = value if known is None else merged(known, value)
        return [Observation(value, _attributes(metric, key)) for key, value in found.items()]

    def _record(self) -> None:
        """Puts the values that were kept into their histograms."""
        while self._values:
            with suppress(IndexError):  # another reader was faster
                attempt(self._faults, "telemetry.record", self._put, self._values.popleft())

    def _put(self, value: Value) -> None:
        histogram = self._histograms.get(value.metric)
        if histogram is not None:
            context = None if value.place is None else context_of(value.place)
            histogram.record(value.value, value.attributes, context)

    def _make(self, provider: MeterProvider | None, faults: InternalErrors) -> None:
        meter = get_meter(_NAME, __version__, provider)
        makers = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for metric in METRICS:
            with swallow(faults, "telemetry.instrument"):
                if metric.type == "histogram":
                    self._histograms[metric.name] = meter.create_histogram(
                        metric.name,
                        metric.unit,
                        metric.about,
                        explicit_bucket_boundaries_advisory=metric.bounds,
                    )
                else:
                    callback = self._callback(metric)
                    makers[metric.type](metric.name, [callback], metric.unit, metric.about)

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def called(_: CallbackOptions) -> Iterable[Observation]:
            return self.observe(metric)

        return called

    def _keep(self, totals: ReadTotals) -> None:
        """A guard is gone: what it has counted stays."""
        for metric in METRICS:
            if metric.type == "counter":
                self._gone.take(metric.name, totals(metric.name))


def _sum(one: float, other: float) -> float:
    return one + other


def _attributes(metric: Metric, key: Key) -> dict[str, str | bool]:
    return {
        name: True if name == semconv.DECISION_SHADOW else value
        for name, value in zip(metric.attributes, key, strict=True)
        if value
    }


# Compared by identity: the meter provider of logfire has no hash.
_boards: list[tuple[weakref.ref[MeterProvider], Instruments]] = []
_unset: list[Instruments] = []
_making = new_lock()


def board_of(provider: MeterProvider | None, faults: InternalErrors) -> Instruments:
    """The board of a meter provider: one for each, as a meter knows an instrument once."""
    with _making:
        known = get_meter_provider()
        if provider is None or provider is known:
            board = _known_board(known) or (_unset[0] if _unset else None)
            if board is None:
                # What is set later takes over the instruments of the one that stood in for it.
                board = Instruments(None, faults)
                _unset.append(board)
            return board
        board = _known_board(provider)
        if board is None:
            board = Instruments(provider, faults)
            _boards.append((weakref.ref(provider), board))
        return board


def _known_board(provider: MeterProvider) -> Instruments | None:
    _boards[:] = [one for one in _boards if one[0]() is not None]
    return next((board for known, board in _boards if known() is provider), None)


class _Making:
    """Makes the lock anew in the child of a fork."""

    def forked(self) -> None:
        global _making  # noqa: PLW0603
        _making = new_lock()


_renewing = _Making()
reset_after_fork(_renewing)


Estimator = Callable[[str, object], "Estimate"]

_OUTCOMES: Final = ("success", "failure")
_PROFILE: Final = "profile"
_WORST: Final = 1000.0
_REDIS: Final = "redis"
"""The one store that is written behind."""
_TOOL: Final = Kind.TOOL
_AGENT: Final = Kind.AGENT
_MODEL: Final = Kind.MODEL
_MAX_NUMBERS: Final = 1 << 40
_HAPPENINGS: Final[Mapping[Happening, str]] = {
    "retries": semconv.METRIC_RUN_RETRIES,
    "degraded": semconv.METRIC_RUN_DEGRADED_STEPS,
    "compactions": semconv.METRIC_RUN_COMPACTIONS,
    "missing_dependencies": semconv.METRIC_RUN_MISSING_DEPENDENCIES,
}


class MetricsRecorder:
    """Counts what one guard sees and decides. Thread-safe; nothing of an SDK runs in here."""

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: InternalErrors,
        detectors: Sequence[str],
        estimate: Estimator,
        meters: MeterProvider | None,
        *,
        on: bool,
    ) -> None:
        self.faults = faults
        self.counts = Counts()
        self.waiting: Callable[[], int] | None = None
        self._agents = CardinalityLimit(settings.tuning.telemetry.agents)
        self._tools = CardinalityLimit(settings.tuning.telemetry.tools)
        self._detectors = CardinalityLimit(2 * len(detectors))
        for name in detectors:
            self._detectors.of(name)
        shadow = settings.mode == "shadow"
        self._zeros = Zeros(detectors, settings.tuning.telemetry.zero_agents, shadow=shadow)
        self._totals = Totals(self.counts, faults)
        self._timed = Sampling(settings.tuning.telemetry.sample)
        self._compared = Sampling(settings.tuning.telemetry.sample)
        self._estimate = estimate
        self._looks: Mapping[str, Callable[[], Mapping[Key, float]]] = {}
        self._board: Instruments | None = None
        if on:
            with swallow(faults, "telemetry.board"):
                self._board = board_of(meters, faults)
                self._board.join(self, self._totals)

    def watch(self, state: State) -> None:
        """Takes what is looked at when metrics are collected; anew in the child of a fork."""
        if self._board is None:
            return
        self._totals.watch(state)
        if state.writer is not None:
            state.writer.answered = partial(_store_answered, self._board)
        self._looks = {
            semconv.METRIC_SESSION_ACTIVE: lambda: state.active(self._agents),
            semconv.METRIC_SESSION_STALLED: lambda: state.stalled(self._agents),
            semconv.METRIC_SESSION_PAUSED: state.paused,
            semconv.METRIC_SESSION_KNOWN: state.known,
            semconv.METRIC_STEP_OPEN: state.open,
            semconv.METRIC_BREAKER_OPEN: lambda: state.breakers(self._tools, self._agents),
            semconv.METRIC_RESOURCE_UTILIZATION: state.resources,
            semconv.METRIC_PROFILE_HIT_RATE: state.hit_rate,
            semconv.METRIC_FEEDBACK: state.feedback,
            semconv.METRIC_STORE_STATUS: state.store,
            semconv.METRIC_STORE_QUEUE_SIZE: state.store_queue,
            semconv.METRIC_STORE_QUEUE_CAPACITY: state.store_capacity,
            semconv.METRIC_EXPORTER_QUEUE_SIZE: state.exporter_queue,
            semconv.METRIC_EXPORTER_QUEUE_CAPACITY: state.exporter_capacity,
            semconv.METRIC_ESCALATION_WAITING: self._waiting,
        }

    def told(self, metric: str) -> Mapping[Key, float]:
        """What there is to say of a metric now, by values of its attributes."""
        look = self._looks.get(metric)
        if look is not None:
            return look()
        return {**self._zeros.of(metric, self._agents.all), **self._totals(metric)}

    @hook
    def took(self, session: Session, step: Step) -> None:
        """A step was judged. The guard's lock is held, on the way of every step."""
        if self._board is None:
            return
        kind, add = step.kind, self.counts.add
        agent = self._agents.of(step.agent or (step.name if kind is _AGENT else None))
        add(semconv.METRIC_STEPS, (kind.value, agent))
        for found in session.detected:
            add(semconv.METRIC_DETECTIONS, (self._detectors.of(found.detector), agent))
        if session.progress.phases.over:
            self._phases_over(session)
        if kind is _MODEL:
            self._context(session, step, agent)
        if kind is not _TOOL:
            return
        tool = self._tools.of(step.name)
        add(semconv.METRIC_TOOL_CALLS, (tool, _OUTCOMES[step.error]))
        turn = session.record.turn
        if turn.recovered:
            add(semconv.METRIC_TOOL_RECOVERIES, (tool,))
        if turn.switched:
            add(semconv.METRIC_STRATEGY_SWITCHES, (agent,))
        if not step.error and self._compared.hit():
            self._compare(step)

    @hook
    def ruled(
        self, session: Session, decision: Decision, agent: str | None, meaning: Meaning
    ) -> None:
        """Something was decided. The guard's lock is held."""
        if self._board is None:
            return
        add, who = self.counts.add, self._agents.of(agent)
        detector, action = self._detectors.of(decision.detector), decision.action.value
        shadow = "true" if decision.shadow else ""
        add(semconv.METRIC_DECISIONS, (action, detector, who, shadow))
        if meaning.found:
            add(semconv.METRIC_LOOPS_DETECTED, (detector, who))
        if meaning.prevented:
            add(semconv.METRIC_LOOPS_PREVENTED, (detector, who))
            tokens, seconds = saved(decision, session.record.spent)
            add(semconv.METRIC_SAVED_TOKENS, (detector, who), round(tokens))
            add(semconv.METRIC_SAVED_TIME, (detector, who), round(seconds, 3))
        if meaning.escalated:
            add(semconv.METRIC_ESCALATIONS, (action, who))

    @hook
    def stalled(self, detector: str, agent: str | None) -> None:
        """Something that runs too long was detected."""
        if self._board is not None:
            key = (self._detectors.of(detector), self._agents.of(agent))
            self.counts.add(semconv.METRIC_DETECTIONS, key)

    def cycled(self, state: str) -> None:
        """A cycle of agents was found, intervened in, put before people, or is over."""
        if self._board is not None:
            self.counts.add(semconv.METRIC_CYCLES, (state,))

    @hook
    def happened(self, what: Happening, times: int = 1) -> None:
        """Something is counted of a run (E14)."""
        if self._board is not None:
            self.counts.add(_HAPPENINGS[what], (), times)

    @hook
    def exported(self, spans: int, decisions: int, error: str = "") -> None:
        """An exporter handed spans on, or could not."""
        if self._board is not None:
            self.counts.add(semconv.METRIC_EXPORTER_SPANS, (error,), spans)
            self.counts.add(semconv.METRIC_EXPORTER_EXPORTED, (error,), decisions)

    def began(self) -> int:
        """When a span that ends is begun to be looked at; 0 for one that is not timed."""
        if self._board is None or not self._timed.hit():
            return 0
        return time.perf_counter_ns()

    @hook
    def ended(self, began: int, trace_id: int, span_id: int) -> None:
        """A span that ended was looked at."""
        if self._board is not None:
            took = (time.perf_counter_ns() - began) / 1e9
            place = SpanRef(trace_id, span_id)
            self._board.keep(Value(semconv.METRIC_EVALUATION_DURATION, took, {}, place))

    def _compare(self, step: Step) -> None:
        """Compares what a call took with its estimate."""
        took = ((step.end or 0) - step.start) / 1e6
        if self._board is None or not step.start or took <= 0 or not step.name:
            return
        estimate = self._estimate(step.name, step.args)
        if estimate.source.value == _PROFILE:
            # One call that took no time must not be the mean.
            error = min(100 * abs(estimate.duration_ms - took) / took, _WORST)
            self._board.keep(Value(semconv.METRIC_ESTIMATE_ERROR, error, {}))

    def _phases_over(self, session: Session) -> None:
        for phase in session.progress.phases.over:
            if phase.seconds is not None:
                agent = self._agents.of(phase.name)
                self._keep(semconv.METRIC_RUN_PHASE_DURATION, phase.seconds, agent)

    def _context(self, session: Session, step: Step, agent: str) -> None:
        if step.tokens_in is not None:
            # A span may say anything.
            tokens = min(max(step.tokens_in, 0), _MAX_NUMBERS)
            self._keep(semconv.METRIC_RUN_CONTEXT_TOKENS, tokens, agent)
        if session.shrunk:
            self.happened("compactions")

    def _keep(self, metric: str, value: float, agent: str) -> None:
        if self._board is not None:
            self._board.keep(Value(metric, value, {AGENT: agent}))

    def _waiting(self) -> Mapping[Key, float]:
        return {} if self.waiting is None else {(): self.waiting()}


def _store_answered(board: Instruments, operation: str, seconds: float, error: str) -> None:
    """A call of the store was answered, or failed; on the thread that made it.

    It holds no guard: what a guard counted is asked of its writer once more when it is gone.
    """
    attributes = {SYSTEM: _REDIS, OPERATION: operation}
    if error:
        attributes[semconv.ERROR_TYPE] = error
    board.keep(Value(semconv.METRIC_STORE_OPERATION_DURATION, seconds, attributes))
