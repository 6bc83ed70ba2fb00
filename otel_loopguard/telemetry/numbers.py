"""What one guard counts for metrics.

Source: FEATURES A10, C15, E14, O3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard.core import Kind
from otel_loopguard.faults import hook, swallow
from otel_loopguard.telemetry.board import Board, Value, board_of
from otel_loopguard.telemetry.counts import Counts, Key
from otel_loopguard.telemetry.metrics import AGENT, OPERATION, SYSTEM
from otel_loopguard.telemetry.names import Names
from otel_loopguard.telemetry.places import Place
from otel_loopguard.telemetry.sampling import Sampling
from otel_loopguard.telemetry.savings import saved
from otel_loopguard.telemetry.totals import Totals
from otel_loopguard.telemetry.zeros import Zeros

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from otel_loopguard.core import Decision, Step
    from otel_loopguard.faults import Faults
    from otel_loopguard.profiling import Estimate
    from otel_loopguard.reports import Happening, Meaning
    from otel_loopguard.sessions import Session
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.state import State

Estimator = Callable[[str, object], "Estimate"]

_OUTCOMES: Final = ("success", "failure")
_PROFILE: Final = "profile"
_WORST: Final = 1000.0
_REDIS: Final = "redis"
"""The one store that is written behind."""
_TOOL: Final = Kind.TOOL
_AGENT: Final = Kind.AGENT
_MODEL: Final = Kind.MODEL
_MOST: Final = 1 << 40
_HAPPENINGS: Final[Mapping[Happening, str]] = {
    "retries": semconv.METRIC_RUN_RETRIES,
    "degraded": semconv.METRIC_RUN_DEGRADED_STEPS,
    "compactions": semconv.METRIC_RUN_COMPACTIONS,
    "missing_dependencies": semconv.METRIC_RUN_MISSING_DEPENDENCIES,
}


class Numbers:
    """Counts what one guard sees and decides. Thread-safe; nothing of an SDK runs in here.

    Args:
        settings: Settings of the guard.
        faults: Its faults.
        detectors: Names of all detectors.
        estimate: How long a call of a tool takes, from memory.
        meters: The meter provider; None for the global one.
        on: Whether anything is counted.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: Faults,
        detectors: Sequence[str],
        estimate: Estimator,
        meters: MeterProvider | None,
        *,
        on: bool,
    ) -> None:
        self.faults = faults
        self.counts = Counts()
        self.waiting: Callable[[], int] | None = None
        self._agents = Names(settings.telemetry_agents)
        self._tools = Names(settings.telemetry_tools)
        self._detectors = Names(2 * len(detectors))
        for name in detectors:
            self._detectors.of(name)
        shadow = settings.mode == "shadow"
        self._zeros = Zeros(detectors, settings.telemetry_zero_agents, shadow=shadow)
        self._totals = Totals(self.counts, faults)
        self._timed = Sampling(settings.telemetry_sample)
        self._compared = Sampling(settings.telemetry_sample)
        self._estimate = estimate
        self._looks: Mapping[str, Callable[[], Mapping[Key, float]]] = {}
        self._board: Board | None = None
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
        """Something was decided. The guard's lock is held.

        Args:
            session: About which session.
            decision: What.
            agent: Name of the agent concerned, if it is known.
            meaning: What it is the first of.
        """
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
        """Something is counted of a run (E14).

        Args:
            what: The field of `RunMetrics`.
            times: How often.
        """
        if self._board is not None:
            self.counts.add(_HAPPENINGS[what], (), times)

    @hook
    def exported(self, spans: int, decisions: int, error: str = "") -> None:
        """An exporter handed spans on, or could not.

        Args:
            spans: How many.
            decisions: How many of them have a decision.
            error: What went wrong; empty if nothing did.
        """
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
        """A span that ended was looked at.

        Args:
            began: What `began` gave, not 0.
            trace_id: Its trace.
            span_id: Its id.
        """
        if self._board is not None:
            took = (time.perf_counter_ns() - began) / 1e9
            place = Place(trace_id, span_id)
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
            tokens = min(max(step.tokens_in, 0), _MOST)
            self._keep(semconv.METRIC_RUN_CONTEXT_TOKENS, tokens, agent)
        if session.shrunk:
            self.happened("compactions")

    def _keep(self, metric: str, value: float, agent: str) -> None:
        if self._board is not None:
            self._board.keep(Value(metric, value, {AGENT: agent}))

    def _waiting(self) -> Mapping[Key, float]:
        return {} if self.waiting is None else {(): self.waiting()}


def _store_answered(board: Board, operation: str, seconds: float, error: str) -> None:
    """A call of the store was answered, or failed; on the thread that made it.

    It holds no guard: what a guard counted is asked of its writer once more when it is gone.
    """
    attributes = {SYSTEM: _REDIS, OPERATION: operation}
    if error:
        attributes[semconv.ERROR_TYPE] = error
    board.keep(Value(semconv.METRIC_STORE_OPERATION_DURATION, seconds, attributes))
