"""Counts what a guard does, and reports it as metrics.

Counts are plain tables, read when a reader collects: nothing of an SDK runs on the agent's thread,
counters exist with 0 before anything happens, and a provider that is set later misses nothing.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.metrics import Observation, get_meter, get_meter_provider

from otel_loopguard import semconv
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.bounded import OTHER, UNKNOWN, CardinalityLimit
from otel_loopguard._util.errors import InternalErrors, attempt, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard.core import Action, Choice, Decision, Kind
from otel_loopguard.core.report import SAME, Happening
from otel_loopguard.telemetry import metrics
from otel_loopguard.telemetry.events import AGENT, context_of, span_context
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import SpanContext

    from otel_loopguard.sessions import observation as published
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.metrics import Key, State, Values

_TOOL: Final = Kind.TOOL
_MODEL: Final = Kind.MODEL
# The SDK gives up its own order past 2000 attribute sets of an instrument, and says `overflow`.
_MOST_KEYS: Final = 1800
# Values of histograms between two collections: at one a minute, 68 a second. About 1 MB.
_MOST_VALUES: Final = 4096
# A short run shows its cost too: the first spans are all timed.
_FIRST_TIMED: Final = 64
# Agents whose decisions are reported as 0 before the first, so that its rate is right; each costs
# as many series as there are actions.
_ZERO_AGENTS: Final = 20
_SETS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("actions",): tuple(action.value for action in Action),
    ("choices",): tuple(choice.value for choice in Choice),
}
_HAPPENINGS: Final[Mapping[Happening, str]] = {
    "retries": semconv.METRIC_RUN_RETRIES,
    "degraded": semconv.METRIC_RUN_DEGRADED_STEPS,
    "compactions": semconv.METRIC_RUN_COMPACTIONS,
    "missing_dependencies": semconv.METRIC_RUN_MISSING_DEPENDENCIES,
}

Misses = Callable[[], "Iterable[float]"]
"""Returns and forgets the errors of estimates, each in percent of the duration of its call."""


class Counts:
    """Counts of one guard, or of guards that are gone. Thread-safe.

    Past 1800 different attributes of a metric, new ones are counted as `other` throughout.
    """

    def __init__(self) -> None:
        self.kept: metrics.Totals | None = None  # counted by parts of the guard themselves
        self._lock = new_lock()
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork: the parent reports what it counted."""
        self._counts: dict[str, dict[Key, float]] = {}

    def add(self, metric: str, key: Key, amount: float = 1) -> None:
        """Counts."""
        with self._lock:
            counts = self._counts.setdefault(metric, {})
            if key not in counts and len(counts) >= _MOST_KEYS:
                key = tuple(OTHER if value else value for value in key)
            counts[key] = counts.get(key, 0) + amount

    def get(self, metric: str) -> dict[Key, float]:
        """The present counts of a metric, by values of its attributes."""
        with self._lock:
            return dict(self._counts.get(metric, {}))

    def total(self, metric: metrics.Metric) -> Values:
        """As `get`, with the counts that parts of the guard keep themselves."""
        found = self.get(metric.name)
        if metric.total is not None and self.kept is not None:
            found |= metric.total(self.kept)
        return found


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
    place: SpanContext | None = None


class Instruments:
    """The instruments of one meter provider, which add up the counts of all its guards.

    Guards are held weakly; the counts of one that is gone stay, as counters only go up.

    Attributes:
        values: Values of histograms, until a reader collects; the newest 4096.
    """

    def __init__(self, provider: MeterProvider | None, faults: InternalErrors) -> None:
        self._joined: list[tuple[weakref.ref[MetricsRecorder], Counts]] = []
        self._gone = Counts()
        self._lock = new_lock()
        self._faults = faults
        self.values: deque[Value] = deque(maxlen=_MOST_VALUES)
        self._histograms: dict[str, Histogram] = {}
        with swallow(faults, "telemetry.meter"):
            self._make(provider)
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: earlier counts are the parent's."""
        self._joined = [one for one in self._joined if one[0]() is not None]
        self._gone.forked()
        self.values.clear()

    def join(self, recorder: MetricsRecorder) -> None:
        """Adds a guard."""
        with self._lock:
            self._present()
            self._joined.append((weakref.ref(recorder), recorder.counts))

    def store_answered(self, operation: str, seconds: float, error: str) -> None:
        """Records a call of the store, answered or failed; on the thread that made it."""
        # Redis is the one store that is written behind.
        attributes = {metrics.SYSTEM: "redis", metrics.OPERATION: operation}
        if error:
            attributes[semconv.ERROR_TYPE] = error
        self.values.append(Value(semconv.METRIC_STORE_OPERATION_DURATION, seconds, attributes))

    def observe(self, metric: metrics.Metric, _: object) -> list[Observation]:
        """The present observations of a metric."""
        while self.values:
            with suppress(IndexError):  # another reader was faster
                attempt(self._faults, "telemetry.record", self._record, self.values.popleft())
        with self._lock:
            recorders = self._present()
            found = self._gone.get(metric.name)
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

    def _record(self, value: Value) -> None:
        histogram = self._histograms.get(value.metric)
        if histogram is not None:
            context = None if value.place is None else context_of(value.place)
            histogram.record(value.value, value.attributes, context)

    def _make(self, provider: MeterProvider | None) -> None:
        meter = get_meter("otel_loopguard", __version__, provider)
        makers: dict[str, Callable[..., Any]] = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for each in metrics.METRICS:
            with swallow(self._faults, "telemetry.instrument"):
                if each.type == "histogram":
                    self._histograms[each.name] = meter.create_histogram(
                        each.name, each.unit, each.about,
                        explicit_bucket_boundaries_advisory=each.bounds,
                    )  # fmt: skip
                else:
                    observe = partial(self.observe, each)
                    makers[each.type](each.name, [observe], each.unit, each.about)

    def _present(self) -> list[MetricsRecorder]:
        """The recorders of living guards; adds up the counts of the others. The lock is held."""
        joined = [(known(), counts) for known, counts in self._joined]
        for recorder, counts in joined:
            if recorder is None:
                with swallow(self._faults, "telemetry.gone"):
                    self._add_gone(counts)
        self._joined = [(weakref.ref(one), counts) for one, counts in joined if one is not None]
        return [recorder for recorder, _ in joined if recorder is not None]

    def _add_gone(self, counts: Counts) -> None:
        for metric in metrics.METRICS:
            if metric.type == "counter":
                for key, amount in counts.total(metric).items():
                    self._gone.add(metric.name, key, amount)


# Compared by identity: the meter provider of logfire has no hash.
_known: Final[list[tuple[weakref.ref[MeterProvider], Instruments]]] = []
_unset: Instruments | None = None
_making: Final = new_lock()


def instruments_of(provider: MeterProvider | None, faults: InternalErrors) -> Instruments:
    """The instruments of a meter provider, as a meter knows an instrument once; None: the global.

    They are made on first use. A provider that is set later takes over those of its stand-in.
    """
    global _unset  # noqa: PLW0603
    with _making:
        standing = get_meter_provider()
        wanted = standing if provider is None else provider
        _known[:] = [one for one in _known if one[0]() is not None]
        found = next((made for known, made in _known if known() is wanted), None)
        if found is None and wanted is standing:
            found = _unset = _unset or Instruments(None, faults)
        elif found is None:
            found = Instruments(wanted, faults)
            _known.append((weakref.ref(wanted), found))
        return found


class MetricsRecorder:
    """Counts what one guard sees and decides. Thread-safe; nothing of an SDK runs in here.

    Attributes:
        on: False without a meter provider; then it is not subscribed.
        counts: The counts so far.
        agents: Names of agents on metrics.
        tools: Names of tools on metrics.
        untimed: Ended spans up to the next one that is timed.
        state: What is read when metrics are collected; None before the guard is whole.
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
        self.counts = Counts()
        self.untimed = 1
        self._first_timed = _FIRST_TIMED
        self._sample = tuning.sample
        self.state: State | None = None
        # Those of the settings, and as many that an application adds.
        self._detectors = CardinalityLimit(2 * len(detectors))
        for name in detectors:
            self._detectors.get(name)
        self._shadow = "true" if settings.mode == "shadow" else ""
        self._misses = misses
        self._instruments: Instruments | None = None
        if on:
            with swallow(faults, "telemetry.board"):
                self._instruments = instruments_of(meters, faults)
        self.on = self._instruments is not None

    def watch(self, state: State) -> None:
        """Sets what is read when metrics are collected; anew in the child of a fork."""
        instruments = self._instruments
        if instruments is None:
            return
        joins = self.state is None
        self.state = state._replace(agents=self.agents, tools=self.tools)
        kept = metrics.Totals(self.faults, state.acceptance, state.annotator, state.writer)
        self.counts.kept = kept
        if state.writer is not None:
            # Holds no guard: the writer is asked for its counts once more when the guard is gone.
            state.writer.answered = instruments.store_answered
        if joins:
            instruments.join(self)

    def read(self, name: str) -> Values:
        """The present values of a metric, by values of its attributes."""
        settle_all()
        metric = _BY_NAME[name]
        if name == semconv.METRIC_PROFILE_HIT_RATE:
            # Histograms have no callback: these are recorded before the next metric is read.
            for miss in self._misses():
                self._keep(semconv.METRIC_ESTIMATE_ERROR, miss, {})
        if metric.read is not None:
            return {} if self.state is None else metric.read(self.state)
        return {**self._zeros(metric), **self.counts.total(metric)}

    def _zeros(self, metric: metrics.Metric) -> Values:
        if metric.zeros is None:
            return {}
        agents = (UNKNOWN, *self.agents.all[:_ZERO_AGENTS])
        named = {**_SETS, ("agents",): agents, ("shadow",): (self._shadow,)}
        return dict.fromkeys(product(*(named.get(each, each) for each in metric.zeros)), 0)

    def on_step(self, seen: published.Observation) -> None:
        """Counts a step that was judged; on the way of every step."""
        step, agent = seen.step, self.agents.get(seen.agent)
        kind, tokens = step.kind, step.tokens_in
        self.counts.add(semconv.METRIC_STEPS, (kind.value, agent))
        if kind is _MODEL:
            if tokens is not None:
                self._keep(semconv.METRIC_RUN_CONTEXT_TOKENS, tokens, {AGENT: agent})
            if seen.compacted:
                self.happened("compactions")
        elif kind is _TOOL:
            self._called(seen, agent)
        for found in seen.detections:
            self._detected(found.detector, agent)
        for phase in seen.phases:
            if phase.seconds is not None:
                of = {AGENT: self.agents.get(phase.name)}
                self._keep(semconv.METRIC_RUN_PHASE_DURATION, phase.seconds, of)

    def _called(self, seen: published.Observation, agent: str) -> None:
        add, call, tool = self.counts.add, seen.evidence, self.tools.get(seen.step.name)
        add(semconv.METRIC_TOOL_CALLS, (tool, "failure" if seen.step.error else "success"))
        if call is not None and call.waits and call.asked:
            add(semconv.METRIC_WAIT_TOKENS, (agent,), call.asked)
        if seen.turn is not SAME:
            if seen.turn.recovered:
                add(semconv.METRIC_TOOL_RECOVERIES, (tool,))
            if seen.turn.switched:
                add(semconv.METRIC_STRATEGY_SWITCHES, (agent,))

    def _detected(self, detector: str, agent: str) -> None:
        self.counts.add(semconv.METRIC_DETECTIONS, (self._detectors.get(detector), agent))

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
            share = _share_saved(decision, made.spent.calls)
            add(semconv.METRIC_SAVED_TOKENS, (agent,), round(made.spent.tokens * share))
            add(semconv.METRIC_SAVED_TIME, (agent,), round(made.spent.seconds * share, 3))
        if meaning.escalated:
            add(semconv.METRIC_ESCALATIONS, (action, agent))

    def stalled(self, detector: str, agent: str | None) -> None:
        """Counts something that runs too long."""
        with swallow(self.faults, "stalled"):
            self._detected(detector, self.agents.get(agent))

    def happened(self, what: Happening, times: int = 1) -> None:
        """Counts what the application does in a run."""
        with swallow(self.faults, "happened"):
            self.counts.add(_HAPPENINGS[what], (), times)

    def evicted(self) -> None:
        """Counts a session that made room for another."""
        self.counts.add(semconv.METRIC_SESSION_EVICTIONS, ())

    def store_answered(self, operation: str, seconds: float, error: str) -> None:
        """Records a call of the store that did not go by the guard's own writer."""
        if self._instruments is not None:
            self._instruments.store_answered(operation, seconds, error)

    def exported(self, spans: int, decisions: int, error: str = "") -> None:
        """Counts spans that an exporter passed on, or could not."""
        with swallow(self.faults, "exported"):
            self.counts.add(semconv.METRIC_EXPORTER_SPANS, (error,), spans)
            self.counts.add(semconv.METRIC_EXPORTER_EXPORTED, (error,), decisions)

    def began(self) -> int:
        """When the work on an ended span began; 0 for one that is not timed.

        The first 64 are, then one in `tuning.telemetry.sample`. Takes no lock: a lost count does no
        harm. Callers that find `untimed` above 1 may count it down instead.
        """
        self.untimed -= 1
        if self.untimed > 0:
            return 0
        self._first_timed -= 1
        self.untimed = 1 if self._first_timed >= 0 else self._sample
        return time.perf_counter_ns() if self.on else 0

    def ended(self, began: int, trace_id: int, span_id: int) -> None:
        """Records how long the work on an ended span took."""
        took, place = (time.perf_counter_ns() - began) / 1e9, span_context(trace_id, span_id)
        self._keep(semconv.METRIC_EVALUATION_DURATION, took, {}, place)

    def _keep(
        self, metric: str, value: float, attributes: Mapping[str, str],
        place: SpanContext | None = None,
    ) -> None:  # fmt: skip
        if self._instruments is not None:
            self._instruments.values.append(Value(metric, value, attributes, place))


def _share_saved(decision: Decision, calls: int) -> float:
    """The estimated saving of a stop, as a share of what its session spent.

    A loop that was seen `count` times with a `period` of so many calls is expected to go on for as
    many calls as it had: of loops whose length has no scale, half go on for longer. Each call costs
    what the calls of the session cost on average, model calls between them included.
    """
    looped = max(decision.count, 0) * max(decision.period, 1)
    return min(looped, calls) / calls if calls > 0 else 0


_BY_NAME: Final = {metric.name: metric for metric in metrics.METRICS}
