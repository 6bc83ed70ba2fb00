"""Emits metrics and log events on a thread of its own.

Source: FEATURES A11, B8, O3.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry._logs import get_logger
from opentelemetry.trace import Link, Status, StatusCode, get_tracer

from otel_loopguard import semconv
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.locks import Signal, new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.suppress import suppress_instrumentation
from otel_loopguard.core import Action
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.events import context_of, span_context, span_ref
from otel_loopguard.telemetry.recorder import Estimator, MetricsRecorder
from otel_loopguard.telemetry.span_annotator import is_written
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import CycleNews
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.events import Case, Event
    from otel_loopguard.telemetry.recorder import Counts, State

_NAME: Final = "otel_loopguard"
_IDLE_S: Final = 2.0


class BackgroundEmitter:
    """Takes log events and emits them, in their order; nobody who gives it one waits.

    The thread is a daemon, is started by the first event, ends when it is idle, and is started
    again in the child of a fork. Past `tuning.telemetry.queue` events that wait, more are dropped
    and counted. What waits when the process ends has `tuning.telemetry.flush_s` seconds.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        counts: Counts,
        loggers: LoggerProvider | None = None,
        tracers: TracerProvider | None = None,
    ) -> None:
        self._most = settings.tuning.telemetry.queue
        self._flush_s = settings.tuning.telemetry.flush_s
        self._logging = settings.telemetry_events
        self._faults = faults
        self._counts = counts
        self._loggers = loggers
        self._tracers = tracers
        self._logger: Logger | None = None
        self._registered = False
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork: what waits, the parent emits."""
        self._lock = new_lock()
        # A SimpleQueue may be put to by a finalizer that runs inside of its own `put`.
        self._waiting: SimpleQueue[Event | Signal] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def tell(self, event: Event) -> None:
        """Takes an event."""
        if self._waiting.qsize() >= self._most:
            self._counts.add(semconv.METRIC_EVENTS, ("queue_full",))
            return
        self._waiting.put(event)
        self._wake()

    def close(self) -> None:
        """Waits until what was told is emitted, at most for `tuning.telemetry.flush_s`."""
        if self._thread is None and self._waiting.empty():
            return
        done = Signal()
        self._waiting.put(done)
        self._wake()
        done.wait(self._flush_s)

    def _wake(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is not None:
                return
            given = (self._waiting,)
            self._thread = threading.Thread(
                target=self._run, name="loopguard-events", args=given, daemon=True
            )
            # Registered late, and so called before the providers shut themselves down.
            if not self._registered:
                self._registered = True
                atexit.register(_close, weakref.ref(self))
            with swallow(self._faults, "telemetry.thread"):
                self._start(self._thread)

    def _start(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:
            # The interpreter ends, or there are too many: the next event tries again.
            self._thread = None
            raise

    def _run(self, waiting: SimpleQueue[Event | Signal]) -> None:
        with suppress_instrumentation():
            while True:
                try:
                    event = waiting.get(timeout=_IDLE_S)
                except Empty:
                    with self._lock:
                        if waiting.empty():
                            if waiting is self._waiting:
                                self._thread = None
                            return
                    continue
                if isinstance(event, Signal):
                    event.set()
                    continue
                emitted = attempt(self._faults, "telemetry.emit", self._emit, event)
                self._counts.add(semconv.METRIC_EVENTS, ("" if emitted else "failure",))

    def _emit(self, event: Event) -> bool:
        context = context_of(event.place)
        if event.span:
            self._span(event, context)
        if not self._logging:
            return True
        if self._logger is None:
            self._logger = get_logger(_NAME, __version__, self._loggers)
        now = time.time_ns()
        self._logger.emit(
            timestamp=event.time or now,
            observed_timestamp=now,
            context=context,
            severity_number=event.severity,
            severity_text=event.severity.name,
            body=event.body,
            attributes=event.attributes,
            event_name=event.name,
        )
        return True

    def _span(self, event: Event, context: Context) -> None:
        """A span of its own, below the one that ended without the decision on it."""
        # Names of tools and agents would make it a step for whoever reads the trace.
        said = {
            name: value
            for name, value in event.attributes.items()
            if not name.startswith("gen_ai.")
        }
        tracer = get_tracer(_NAME, __version__, self._tracers)
        span = tracer.start_span(
            event.name,
            context,
            attributes=said,
            links=[Link(span_context(trace_id, span_id)) for trace_id, span_id in event.links],
            start_time=event.time,
        )
        if event.error is not None:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(event.time)


def _close(reference: weakref.ref[BackgroundEmitter]) -> None:
    herald = reference()
    if herald is not None:
        herald.close()


class EventEmitter:
    """Tells of what one guard decides. Nothing here waits or raises.

    Attributes:
        answering: Whether somebody else tells of what is put before people (`escalated`).
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        herald: BackgroundEmitter | None,
        *,
        live: bool,
    ) -> None:
        self._faults = faults
        self._herald = herald
        self._events = settings.telemetry_events
        self._spans = settings.decision_spans and live
        self.answering = False

    def decided(
        self,
        decision: Decision,
        opened: ActiveSpan | None,
        agent: str | None,
        fields: Callable[[Decision], Mapping[str, events.Value]],
    ) -> None:
        """Tells of a decision."""
        with swallow(self._faults, "log"):
            said = fields(decision)
            level = logging.WARNING if decision.action.stops else logging.INFO
            told = "%s: session %s: %s", decision.action, decision.session, _told(decision)
            logger.log(level, *told, extra=said)
            self._emit(decision, opened, agent, said)

    def escalated(self, case: Case) -> None:
        """Tells of what is put before people, when it is made and when it is over."""
        with swallow(self._faults, "telemetry.escalated"):
            if self._herald is not None and self._events:
                self._herald.tell(events.escalated(case))

    def cycled(self, session: str, news: CycleNews, opened: ActiveSpan | None) -> None:
        """Tells of a cycle of agents."""
        if self._herald is not None and self._events:
            view = None if opened is None else opened.view
            ids = (0, 0) if view is None else (view.trace_id, view.span_id)
            self._herald.tell(events.cycle(session, news, span_ref(*ids, opened)))

    def _emit(
        self,
        decision: Decision,
        opened: ActiveSpan | None,
        agent: str | None,
        said: Mapping[str, events.Value],
    ) -> None:
        herald = self._herald
        if herald is None:
            return
        place = span_ref(decision.trace_id, decision.span_id, opened)
        span = self._spans and self._is_nowhere(decision, opened)
        if span or self._events:
            herald.tell(events.decided(decision, agent, said, place, span=span))
        if self._events and not self.answering and _asks(decision):
            herald.tell(events.asked(decision, agent, place))

    def _is_nowhere(self, decision: Decision, opened: ActiveSpan | None) -> bool:
        """Whether no span has it: nothing is open above, and no exporter of ours writes it."""
        if decision.action is Action.ALLOW or not decision.span_id or is_written(self._faults):
            return False
        if opened is None:
            return True
        return opened.ended and not any(
            isinstance(each.view, ActiveSpanView) for each in opened.above()
        )


def _told(decision: Decision) -> str:
    """What the log says; of a pause also how to end it."""
    if decision.action is not Action.PAUSE or decision.shadow:
        return decision.message
    return (
        f"{decision.message}; it waits for an answer: `otel-loopguard resume {decision.session}` "
        f"(or `abort`), or control.resume({decision.session!r})"
    )


def _asks(decision: Decision) -> bool:
    asks = decision.action in (Action.ASK, Action.PAUSE)
    return asks or decision.intervention == "escalate_human"


class Escalations(Protocol):
    """What is put before people (C8)."""

    def listen(self, listener: Callable[[Case], None]) -> None:
        """Has something called for every escalation, when it is made and when it is over."""
        ...

    def open_escalations(self) -> Sequence[object]:
        """What waits for an answer."""
        ...


class Telemetry:
    """The metrics and the log events of one guard. Thread-safe; never raises, never waits.

    Attributes:
        numbers: What is counted.
        voice: Tells of decisions.

    Source: FEATURES A10, A11, B8, C15, O3.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: InternalErrors,
        *,
        live: bool,
        detectors: Sequence[str],
        estimate: Estimator,
        meters: MeterProvider | None = None,
        loggers: LoggerProvider | None = None,
    ) -> None:
        counting = settings.telemetry_metrics and (live or meters is not None)
        self.numbers = MetricsRecorder(settings, faults, detectors, estimate, meters, on=counting)
        telling = settings.enabled and (live or loggers is not None)
        self._herald = (
            BackgroundEmitter(settings, faults, self.numbers.counts, loggers) if telling else None
        )
        self.voice = EventEmitter(settings, faults, self._herald, live=live)

    def cycled(self, session: str, news: CycleNews, opened: ActiveSpan | None) -> None:
        """Something happened to a cycle of agents."""
        self.numbers.cycled(news.state)
        self.voice.cycled(session, news, opened)

    def follow(self, escalations: Escalations) -> None:
        """Takes what is put before people: it is counted while it waits, and told of."""
        self.voice.answering = True
        self.numbers.waiting = lambda: len(escalations.open_escalations())
        escalations.listen(self.voice.escalated)

    def watch(self, state: State) -> None:
        """Takes what is looked at when metrics are collected; anew in the child of a fork."""
        self.numbers.watch(state)

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted and waits is the parent's."""
        self.numbers.counts.forked()
        if self._herald is not None:
            self._herald.forked()

    def close(self) -> None:
        """Emits what waits, at most for `tuning.telemetry.flush_s`. It may be used further."""
        if self._herald is not None:
            self._herald.close()
