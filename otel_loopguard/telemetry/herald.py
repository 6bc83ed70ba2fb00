"""Emits log events on a thread of its own, so that no exporter of logs holds the agent."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from opentelemetry._logs import get_logger
from opentelemetry.trace import Link, Status, StatusCode, get_tracer

from otel_loopguard import semconv
from otel_loopguard.faults import attempt, swallow
from otel_loopguard.locks import Signal, new_lock
from otel_loopguard.quiet import untraced
from otel_loopguard.telemetry.places import context_of, span_context
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

    from otel_loopguard.faults import Faults
    from otel_loopguard.settings.telemetry import TelemetrySettings
    from otel_loopguard.telemetry.counts import Counts
    from otel_loopguard.telemetry.events import Event

_NAME: Final = "otel_loopguard"
_IDLE_S: Final = 2.0


class Herald:
    """Takes log events and emits them, in their order; nobody who gives it one waits.

    The thread is a daemon, is started by the first event, ends when it is idle, and is started
    again in the child of a fork. Past `telemetry_queue` events that wait, more are dropped and
    counted. What waits when the process ends has `telemetry_flush_s` seconds.

    Args:
        settings: All that begins with `telemetry_`.
        faults: Where faults of loggers are counted.
        counts: Where events are counted.
        loggers: The logger provider; None for the global one, which may be set later.
        tracers: The tracer provider for decisions that are spans; None for the global one.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        faults: Faults,
        counts: Counts,
        loggers: LoggerProvider | None = None,
        tracers: TracerProvider | None = None,
    ) -> None:
        self._most = settings.telemetry_queue
        self._flush_s = settings.telemetry_flush_s
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
        """Waits until what was told is emitted, at most for `telemetry_flush_s`."""
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
        with untraced():
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


def _close(reference: weakref.ref[Herald]) -> None:
    herald = reference()
    if herald is not None:
        herald.close()
