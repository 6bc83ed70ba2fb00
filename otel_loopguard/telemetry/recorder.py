"""Counts what a guard does, and reports it as metrics.

All that is counted is counted in plain tables, and read when a reader collects: nothing of an SDK
runs on the agent's thread, counters are there with 0 before anything happened, and a provider that
is set later misses nothing.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry.metrics import Observation, get_meter, get_meter_provider

from otel_loopguard import semconv
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.errors import attempt, hook, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action, Choice, Kind
from otel_loopguard.core.report import SAME
from otel_loopguard.telemetry.events import SpanRef, context_of, saved
from otel_loopguard.telemetry.metrics import (
    AGENT,
    METRICS,
    OPERATION,
    SYSTEM,
    UNKNOWN,
    CardinalityLimit,
    Counts,
    Metric,
)
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.admission import ResourceUse
    from otel_loopguard.core.report import Happening
    from otel_loopguard.resilience.registry import ResilienceRegistry
    from otel_loopguard.sessions import SessionRegistry
    from otel_loopguard.sessions import observation as published
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.registry import DecisionIndex
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.metrics import Key, Values
    from otel_loopguard.telemetry.span_annotator import SpanAnnotator

_TOOL: Final = Kind.TOOL
_MODEL: Final = Kind.MODEL
_MAX_WAITING: Final = 4096
_MAX_TOKENS: Final = 1 << 40
_ZERO_AGENTS: Final = 20
"""Agents whose decisions are reported as 0 before the first, so that its rate is right; each costs
as many series as there are detectors."""
_FIRST: Final = 64
_NAME: Final = "otel_loopguard"
_COMPONENT: Final = ("loopguard", "loopguard_span_exporter")
_STORE_STATES: Final = {
    "healthy": "available", "slow": "degraded", "full": "degraded", "read_only": "degraded",
    "down": "unavailable",
}  # fmt: skip
_HAPPENINGS: Final[Mapping[Happening, str]] = {
    "retries": semconv.METRIC_RUN_RETRIES,
    "degraded": semconv.METRIC_RUN_DEGRADED_STEPS,
    "compactions": semconv.METRIC_RUN_COMPACTIONS,
    "missing_dependencies": semconv.METRIC_RUN_MISSING_DEPENDENCIES,
}

_OF_LOOPS: Final = (
    semconv.METRIC_LOOPS_DETECTED, semconv.METRIC_LOOPS_PREVENTED,
    semconv.METRIC_SAVED_TOKENS, semconv.METRIC_SAVED_TIME, semconv.METRIC_WAIT_TOKENS,
)  # fmt: skip

Misses = Callable[[], "Iterable[float]"]
"""By how much estimates of calls were off since somebody asked last, in percent of the calls."""


class Sampling:
    """Samples the first 64, then one of so many. Takes no lock: a lost count does no harm."""

    __slots__ = ("_every", "_first", "left")

    def __init__(self, every: int) -> None:
        self._every = every
        self._first = _FIRST
        self.left = 1

    def hit(self) -> bool:
        """Whether to sample this one."""
        self.left -= 1
        if self.left > 0:
            return False
        if self._first > 0:
            self._first -= 1
            self.left = 1
        else:
            self.left = self._every
        return True


@lru_cache(1)
def _zeros() -> Mapping[str, Values]:
    """The attributes that metrics have from the start, each with 0."""

    def each(*values: str) -> Values:
        return {(value,): 0 for value in values}

    return {
        semconv.METRIC_ESCALATIONS: {
            (action.value, UNKNOWN): 0 for action in (Action.ASK, Action.PAUSE)
        },
        semconv.METRIC_CYCLES: each("found", "intervened", "escalated", "resolved"),
        semconv.METRIC_EVENTS: each("", "queue_full", "failure"),
        semconv.METRIC_EXECUTION_CHOICES: each(*(choice.value for choice in Choice)),
        semconv.METRIC_EXPORTER_EXPORTED: each("", "queue_full", "failure", "raised"),
        semconv.METRIC_EXPORTER_SPANS: each("", "failure", "raised"),
        semconv.METRIC_STRATEGY_SWITCHES: each(UNKNOWN),
        semconv.METRIC_SESSION_EVICTIONS: {(): 0},
        **{metric: {(): 0} for metric in _HAPPENINGS.values()},
    }


def _zeros_of(metric: str, agents: Iterable[str], shadow: str) -> Values:
    """What a metric of decisions has of each agent before its first, so that it counts."""
    if metric == semconv.METRIC_DECISIONS:
        return {(action.value, agent, shadow): 0 for agent in agents for action in Action}
    return {(agent,): 0 for agent in agents} if metric in _OF_LOOPS else {}


class Acceptance(Protocol):
    """How often which execution choice was given, on what it rests, and how it was taken."""

    @property
    def choices(self) -> Mapping[Choice, int]:
        """By choice."""
        ...

    @property
    def answers(self) -> Mapping[tuple[str, str], int]:
        """By choice, and whether it was accepted."""
        ...

    @property
    def estimates(self) -> Counter[str]:
        """By what the estimates rest on."""
        ...


@dataclass(frozen=True)
class State:
    """What of a guard is read when metrics are collected, on the thread of their reader.

    Attributes:
        active: Open spans.
        sessions: Sessions.
        index: What people said of decisions.
        annotator: Decisions that wait for an exporter.
        acceptance: What was answered before calls ran.
        resources: Mean and peak use of the machine.
        remedies: Breakers, if there are any.
        writer: Writes to the store, if there is one.
        capacity: Writes that may wait for the store.
    """

    active: ActiveSpans
    sessions: SessionRegistry
    index: DecisionIndex
    annotator: SpanAnnotator
    acceptance: Acceptance
    resources: Callable[[], Mapping[str, ResourceUse]]
    remedies: ResilienceRegistry | None
    writer: Writer | None
    capacity: int

    def by_agent(self, agents: CardinalityLimit, *, stalled: bool) -> Values:
        """Sessions with an open span, or with a stalled one, by agent; 0 for all other agents."""
        found: dict[object, str | None] = {}
        for opened in list(self.active):
            if stalled and not _is_stalled(opened):
                continue
            session = opened.session or self.sessions.of_trace(opened.view.trace_id)
            place = opened.view.trace_id if session is None else id(session)
            named = found.get(place) or opened.agent
            if not named:
                # Of a span that names an agent itself, where no span above it does.
                own = opened.view.attributes.get(AGENT)
                named = own if isinstance(own, str) else None
            found[place] = named
        counts = Counter(agents.get(agent) for agent in found.values())
        return {(agent,): counts[agent] for agent in {UNKNOWN, *agents.all, *counts}}

    def breakers(self, tools: CardinalityLimit, agents: CardinalityLimit) -> Values:
        """Breakers: 1 where one is open."""
        found: dict[Key, float] = {}
        for name, of, is_open in () if self.remedies is None else self.remedies.breakers.all:
            key = (tools.get(name), "") if of == "tool" else ("", agents.get(name))
            found[key] = found.get(key, 0) + is_open
        return found

    def resource_use(self) -> Values:
        """Mean and peak use of the machine, in percent."""
        use = self.resources()
        return {
            (name, statistic): getattr(use[name], statistic)
            for name in ("cpu", "memory", "io_wait")
            if name in use
            for statistic in ("mean", "peak")
        }

    def hit_rate(self) -> Values:
        """Share of the estimates that rest on past calls, in percent; none before the first."""
        estimates = self.acceptance.estimates
        total = estimates.total()
        return {(): 100 * estimates["profile"] / total} if total else {}

    def store(self) -> Values:
        """The state that the store is in."""
        if self.writer is None:
            return {}
        now = _STORE_STATES[self.writer.state]
        return {(state,): int(state == now) for state in dict.fromkeys(_STORE_STATES.values())}


def _is_stalled(opened: ActiveSpan) -> bool:
    """Whether it, or the run that it begins, is past a limit; near one is not past it."""
    said = opened.said or ()
    run = opened.run
    if run is not None and run.opened is opened:
        # What waited for long and goes on is not idle any more.
        said = {*said, *(run.said - {"idle"} if run.busy else run.said)}
    return any(not code.endswith("_near") for code in said)


_LOOKS: Final[Mapping[str, Callable[[State, MetricsRecorder], Values]]] = {
    semconv.METRIC_SESSION_ACTIVE: lambda now, own: now.by_agent(own.agents, stalled=False),
    semconv.METRIC_SESSION_STALLED: lambda now, own: now.by_agent(own.agents, stalled=True),
    semconv.METRIC_SESSION_PAUSED: lambda now, _: {
        (): sum(session.flag.held for session in now.sessions.all)
    },
    semconv.METRIC_SESSION_KNOWN: lambda now, _: {(): len(now.sessions)},
    semconv.METRIC_STEP_OPEN: lambda now, _: {(): len(now.active)},
    semconv.METRIC_BREAKER_OPEN: lambda now, own: now.breakers(own.tools, own.agents),
    semconv.METRIC_RESOURCE_UTILIZATION: lambda now, _: now.resource_use(),
    semconv.METRIC_PROFILE_HIT_RATE: lambda now, _: now.hit_rate(),
    semconv.METRIC_FEEDBACK: lambda now, _: {
        ("confirmed",): now.index.feedback_counts[False],
        ("false_alarm",): now.index.feedback_counts[True],
    },
    semconv.METRIC_STORE_STATUS: lambda now, _: now.store(),
    semconv.METRIC_STORE_QUEUE_SIZE: lambda now, _: (
        {} if now.writer is None else {(): now.writer.standing.waiting}
    ),
    semconv.METRIC_STORE_QUEUE_CAPACITY: lambda now, _: (
        {} if now.writer is None else {(): now.capacity}
    ),
    semconv.METRIC_EXPORTER_QUEUE_SIZE: lambda now, _: (
        {_COMPONENT: now.annotator.waiting} if now.annotator.written else {}
    ),
    semconv.METRIC_EXPORTER_QUEUE_CAPACITY: lambda now, _: (
        {_COMPONENT: now.annotator.capacity} if now.annotator.written else {}
    ),
    semconv.METRIC_ESCALATION_WAITING: lambda _, own: (
        {} if own.waiting is None else {(): own.waiting()}
    ),
}  # fmt: skip
"""Metrics of what is the case now."""


class Totals:
    """Counts that were made for metrics, and those that are kept elsewhere. Holds no guard."""

    def __init__(self, counts: Counts, faults: InternalErrors) -> None:
        self._counts = counts
        self._faults = faults
        self._acceptance: Acceptance | None = None
        self._annotator: SpanAnnotator | None = None
        self._writer: Writer | None = None

    def watch(self, state: State) -> None:
        """Sets where the counts of a guard are kept."""
        self._acceptance = state.acceptance
        self._annotator = state.annotator
        self._writer = state.writer

    def __call__(self, metric: str) -> Values:  # noqa: PLR0911  # a table of where things are
        """What was counted of a metric so far."""
        if metric == semconv.METRIC_FAULTS:
            found: dict[Key, float] = {}
            for kind, count in tuple(self._faults.counts.items()):
                place, _, error = kind.rpartition(":")
                found[place or kind, error if place else ""] = count
            return found
        taken, writer = self._acceptance, self._writer
        if taken is not None and metric == semconv.METRIC_EXECUTION_CHOICES:
            return {(choice.value,): count for choice, count in taken.choices.items()}
        if taken is not None and metric == semconv.METRIC_EXECUTION_ANSWERS:
            return dict(taken.answers)
        if taken is not None and metric == semconv.METRIC_ESTIMATES:
            return {(source,): count for source, count in taken.estimates.items()}
        if writer is not None and metric == semconv.METRIC_STORE_WRITES:
            now = writer.standing
            return {("",): now.stored, ("dropped",): now.dropped, ("refused",): now.refused}
        if writer is not None and metric == semconv.METRIC_STORE_RETRIES:
            return {(): writer.standing.retries}
        counted = self._counts.get(metric)
        if metric == semconv.METRIC_EXPORTER_EXPORTED and self._annotator is not None:
            return {**counted, ("queue_full",): self._annotator.dropped}
        return counted


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


class Instruments:
    """The instruments of one meter provider, which add up what all its guards count.

    Guards are held weakly; what one has counted stays when it is gone, as counters go up only.
    """

    def __init__(self, provider: MeterProvider | None, faults: InternalErrors) -> None:
        self._recorders: weakref.WeakSet[MetricsRecorder] = weakref.WeakSet()
        self._gone = Counts()
        self._lock = new_lock()
        self._faults = faults
        self._left: deque[Totals] = deque()
        self._values: deque[Value] = deque(maxlen=_MAX_WAITING)
        self._histograms: dict[str, Histogram] = {}
        with swallow(faults, "telemetry.meter"):
            self._make(provider)
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock is made anew, and others' counts are the parent's."""
        self._lock = new_lock()
        self._gone.forked()
        self._values.clear()

    def join(self, recorder: MetricsRecorder, totals: Totals) -> None:
        """Adds a guard."""
        with self._lock:
            self._recorders.add(recorder)
        # Kept by the next reader: here, in a weak reference's callback, no lock may be taken.
        weakref.finalize(recorder, self._left.append, totals).atexit = False

    def keep(self, value: Value) -> None:
        """Keeps a value of a histogram until a reader collects; the newest 4096."""
        self._values.append(value)

    def observe(self, metric: Metric) -> list[Observation]:
        """What a reader gets of a metric now."""
        while self._values:
            with suppress(IndexError):  # another reader was faster
                attempt(self._faults, "telemetry.record", self._put, self._values.popleft())
        with self._lock:
            recorders = list(self._recorders)
            while self._left:
                self._keep(self._left.popleft())
        found = dict(self._gone.get(metric.name))
        for recorder in recorders:
            read = attempt(recorder.faults, "telemetry.observe", recorder.read, metric.name) or {}
            for key, value in read.items():
                # Ratios of several guards cannot be summed; the highest one is reported.
                known = found.get(key, value if metric.type == "gauge" else 0)
                found[key] = max(known, value) if metric.type == "gauge" else known + value
        return [
            Observation(
                value,
                {
                    name: True if name == semconv.DECISION_SHADOW else attribute
                    for name, attribute in zip(metric.attributes, key, strict=True)
                    if attribute
                },
            )
            for key, value in found.items()
        ]

    def _put(self, value: Value) -> None:
        histogram = self._histograms.get(value.metric)
        if histogram is not None:
            context = None if value.place is None else context_of(value.place)
            histogram.record(value.value, value.attributes, context)

    def _make(self, provider: MeterProvider | None) -> None:
        meter = get_meter(_NAME, __version__, provider)
        makers = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }

        def callback(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
            return lambda _: self.observe(metric)

        for metric in METRICS:
            with swallow(self._faults, "telemetry.instrument"):
                if metric.type == "histogram":
                    self._histograms[metric.name] = meter.create_histogram(
                        metric.name, metric.unit, metric.about,
                        explicit_bucket_boundaries_advisory=metric.bounds,
                    )  # fmt: skip
                else:
                    make = makers[metric.type]
                    make(metric.name, [callback(metric)], metric.unit, metric.about)

    def _keep(self, totals: Totals) -> None:
        """A guard is gone: what it has counted stays."""
        for metric in METRICS:
            if metric.type == "counter":
                for key, amount in totals(metric.name).items():
                    self._gone.add(metric.name, key, amount)


class _Providers:
    """The instruments of each meter provider, as a meter knows an instrument once."""

    def __init__(self) -> None:
        self._lock = new_lock()
        # Compared by identity: the meter provider of logfire has no hash.
        self._known: list[tuple[weakref.ref[MeterProvider], Instruments]] = []
        self._unset: Instruments | None = None
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        self._lock = new_lock()

    def get(self, provider: MeterProvider | None, faults: InternalErrors) -> Instruments:
        """The instruments of a provider, made if need be; None: of the global one."""
        with self._lock:
            standing = get_meter_provider()
            unset = provider is None or provider is standing
            wanted = standing if provider is None else provider
            self._known = [one for one in self._known if one[0]() is not None]
            found = next((made for known, made in self._known if known() is wanted), None)
            if found is None and unset:
                # What is set later takes over the instruments of the one that stood in for it.
                found = self._unset = self._unset or Instruments(None, faults)
            elif found is None:
                found = Instruments(wanted, faults)
                self._known.append((weakref.ref(wanted), found))
            return found


_providers = _Providers()


class MetricsRecorder:
    """Counts what one guard sees and decides. Thread-safe; nothing of an SDK runs in here.

    Attributes:
        on: Whether anybody may read it; else it is no subscriber.
        counts: What was counted so far.
        agents: Names of agents on metrics.
        tools: Names of tools on metrics.
        waiting: Counts what is before people; None where nothing is put before any.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: InternalErrors,
        detectors: Sequence[str],
        misses: Misses,
        meters: MeterProvider | None,
        *,
        on: bool,
    ) -> None:
        tuning = settings.tuning.telemetry
        self.faults = faults
        self.agents = CardinalityLimit(tuning.agents)
        self.tools = CardinalityLimit(tuning.tools)
        self.counts = Counts(self.agents, self.tools)
        self.waiting: Callable[[], int] | None = None
        self._detectors = CardinalityLimit(2 * len(detectors))
        for name in detectors:
            self._detectors.get(name)
        self._shadow = "true" if settings.mode == "shadow" else ""
        self._totals = Totals(self.counts, faults)
        self.timed = Sampling(tuning.sample)
        self._misses = misses
        self._state: State | None = None
        self._board: Instruments | None = None
        if on:
            with swallow(faults, "telemetry.board"):
                self._board = _providers.get(meters, faults)
                self._board.join(self, self._totals)
        self.on = self._board is not None

    def watch(self, state: State) -> None:
        """Sets what is read when metrics are collected; anew in the child of a fork."""
        if self._board is None:
            return
        self._totals.watch(state)
        self._state = state
        if state.writer is not None:
            state.writer.answered = partial(_store_answered, self._board)

    def read(self, metric: str) -> Values:
        """What there is to report of a metric now, by values of its attributes."""
        settle_all()
        if metric == semconv.METRIC_PROFILE_HIT_RATE:
            # Nobody asks a histogram; these are recorded before the next metric is read.
            for miss in self._misses():
                self._keep(semconv.METRIC_ESTIMATE_ERROR, miss, {})
        look = _LOOKS.get(metric)
        if look is not None:
            return {} if self._state is None else look(self._state, self)
        agents = (UNKNOWN, *self.agents.all[:_ZERO_AGENTS])
        zeros = _zeros_of(metric, agents, self._shadow)
        return {**_zeros().get(metric, {}), **zeros, **self._totals(metric)}

    def on_step(self, seen: published.Observation) -> None:
        """Counts a step that was judged; on the way of every step."""
        step, named = seen.step, seen.agent
        kind, tokens = step.kind, step.tokens_in
        self.counts.step(step, named)
        if kind is _MODEL:
            if tokens is not None:
                # A span may say anything.
                size, agent = min(max(tokens, 0), _MAX_TOKENS), self.agents.get(named)
                self._keep(semconv.METRIC_RUN_CONTEXT_TOKENS, size, {AGENT: agent})
            if seen.compacted:
                self.happened("compactions")
        elif kind is _TOOL:
            self._called(seen, named)
        for found in seen.detections:
            key = (self._detectors.get(found.detector), self.agents.get(named))
            self.counts.add(semconv.METRIC_DETECTIONS, key)
        for phase in seen.phases:
            if phase.seconds is not None:
                of = {AGENT: self.agents.get(phase.name)}
                self._keep(semconv.METRIC_RUN_PHASE_DURATION, phase.seconds, of)

    def _called(self, seen: published.Observation, agent: str | None) -> None:
        add, call = self.counts.add, seen.evidence
        if call is not None and call.waits and call.asked:
            add(semconv.METRIC_WAIT_TOKENS, (self.agents.get(agent),), call.asked)
        if seen.turn is not SAME:
            if seen.turn.recovered:
                add(semconv.METRIC_TOOL_RECOVERIES, (self.tools.get(seen.step.name),))
            if seen.turn.switched:
                add(semconv.METRIC_STRATEGY_SWITCHES, (self.agents.get(agent),))

    def on_decision(self, made: published.DecisionRecord) -> None:
        """Counts a decision."""
        decision, meaning, add = made.decision, made.meaning, self.counts.add
        action, agent = decision.action.value, self.agents.get(made.agent)
        detector, shadow = self._detectors.get(decision.detector), "true" if decision.shadow else ""
        add(semconv.METRIC_DECISIONS, (action, agent, shadow))
        add(semconv.METRIC_DETECTOR_DECISIONS, (action, detector, agent, shadow))
        if meaning.found:
            add(semconv.METRIC_LOOPS_DETECTED, (agent,))
        if meaning.prevented:
            add(semconv.METRIC_LOOPS_PREVENTED, (agent,))
            tokens, seconds = saved(decision, made.spent)
            add(semconv.METRIC_SAVED_TOKENS, (agent,), round(tokens))
            add(semconv.METRIC_SAVED_TIME, (agent,), round(seconds, 3))
        if meaning.escalated:
            add(semconv.METRIC_ESCALATIONS, (action, agent))

    @hook
    def stalled(self, detector: str, agent: str | None) -> None:
        """Counts something that runs too long."""
        if self.on:
            key = (self._detectors.get(detector), self.agents.get(agent))
            self.counts.add(semconv.METRIC_DETECTIONS, key)

    def cycled(self, state: str) -> None:
        """Counts a cycle of agents that was found, intervened in, put before people, or is over."""
        if self.on:
            self.counts.add(semconv.METRIC_CYCLES, (state,))

    @hook
    def happened(self, what: Happening, times: int = 1) -> None:
        """Counts what the application does in a run."""
        if self.on:
            self.counts.add(_HAPPENINGS[what], (), times)

    def evicted(self) -> None:
        """Counts a session that made room for another."""
        self.counts.add(semconv.METRIC_SESSION_EVICTIONS, ())

    def store_answered(self, operation: str, seconds: float, error: str) -> None:
        """Records a call of the store that did not go by the guard's own writer."""
        if self._board is not None:
            _store_answered(self._board, operation, seconds, error)

    @hook
    def exported(self, spans: int, decisions: int, error: str = "") -> None:
        """Counts spans that an exporter handed on, or could not."""
        if self.on:
            self.counts.add(semconv.METRIC_EXPORTER_SPANS, (error,), spans)
            self.counts.add(semconv.METRIC_EXPORTER_EXPORTED, (error,), decisions)

    def began(self) -> int:
        """When the work on a span that ended began; 0 for one that is not timed.

        Whoever finds `timed.left` above 1 may count it down instead.
        """
        return time.perf_counter_ns() if self.timed.hit() and self.on else 0

    @hook
    def ended(self, began: int, trace_id: int, span_id: int) -> None:
        """Records how long the work on a span that ended took."""
        took, place = (time.perf_counter_ns() - began) / 1e9, SpanRef(trace_id, span_id)
        self._keep(semconv.METRIC_EVALUATION_DURATION, took, {}, place)

    def _keep(
        self, metric: str, value: float, attributes: Mapping[str, str], place: SpanRef | None = None
    ) -> None:
        if self._board is not None:
            self._board.keep(Value(metric, value, attributes, place))


def _store_answered(board: Instruments, operation: str, seconds: float, error: str) -> None:
    """A call of the store was answered, or failed; on the thread that made it.

    It holds no guard: what a guard counted is asked of its writer once more when it is gone.
    """
    # Redis is the one store that is written behind.
    attributes = {SYSTEM: "redis", OPERATION: operation}
    if error:
        attributes[semconv.ERROR_TYPE] = error
    board.keep(Value(semconv.METRIC_STORE_OPERATION_DURATION, seconds, attributes))
