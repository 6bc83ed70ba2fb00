"""The span processor, which passes spans to a guard, and its timer: what hangs emits nothing."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from otel_loopguard._control.context import current_call, named_session
from otel_loopguard._control.flag import STOPPING
from otel_loopguard._util import clock
from otel_loopguard._util.backlog import MOST
from otel_loopguard._util.clock import deterministic, now, off, ticks
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.locks import (
    Signal,
    new_lock,
    reset_after_fork,
    settle,
    start_thread,
    wake_by,
)
from otel_loopguard._util.text import expected
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.evidence.normalize import compile_patterns
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sessions.active import NEVER
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider


class LoopGuardSpanProcessor(SpanProcessor):
    """Passes starting and ending spans to a guard.

    ::

        provider.add_span_processor(LoopGuardSpanProcessor())

    It may stand first or last among the processors. No exception leaves it, and it never waits:
    its hooks only note what started or ended. Whoever asks what was decided has it judged, on their
    own thread; else a timer does, 20 ms after the first span, and calls listeners on its own.

    A decision is written on the spans that are still open (the agent span above, the topmost span
    of the trace); for the ended span itself wrap the exporter in `LoopGuardSpanExporter` with the
    same guard.

    A provider that is shut down shuts its processors down: give each provider one of its own, which
    may share a guard.

    Args:
        guard: The guard to feed; a new one by default.
        meter_provider: Records the metrics of the new guard; the global one by default.
        logger_provider: Emits its log events; the global one by default.
        **settings: Settings of the new guard, by name; see `Settings`.

    Raises:
        LoopGuardSettingsError: A setting cannot be used, or a guard and settings were both given.
        TypeError: What was given is no guard.
    """

    attaches = True
    """True if its guard counts as fed live: not where an adapter feeds it for want of another."""

    def __init__(
        self,
        guard: LoopGuard | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        **settings: Any,
    ) -> None:
        providers = {"meter_provider": meter_provider, "logger_provider": logger_provider}
        named = {name for name, value in providers.items() if value is not None}
        if guard is not None and not isinstance(guard, LoopGuard):  # pyright: ignore[reportUnnecessaryIsInstance]
            instead = "give settings by name, or as LoopGuard(settings)"
            raise TypeError(expected("a LoopGuard", guard, instead))
        if guard is not None and (settings or named):
            msg = f"a guard was given: set {sorted({*settings, *named})} in its Settings instead"
            raise LoopGuardSettingsError(msg)
        self.guard = guard or LoopGuard(
            Settings(**settings), meter_provider=meter_provider, logger_provider=logger_provider
        )
        self.faults = self.guard.faults
        self._backlog = self.guard.backlog
        self._append, self._events = self._backlog.append, self._backlog.events
        self._ignores = self.guard.ignores
        self._timer = WatchdogThread(self.guard)
        self._at_end = self.guard.settings.judging == "at_end"
        self._on = self.guard.settings.enabled
        self._backlog.open()
        if self.attaches:
            if self._on:
                compile_patterns()
            self.guard.attach()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Notes a span that starts, if it may be of interest. Takes no lock of ours."""
        try:
            if not self._on or self._ignores(span):
                return
            if (clock.state.off or clock.state.only) and off(self.guard):
                return
            context = get_current() if parent_context is None else parent_context
            self._append((span, context, current_call(), now(), False))
            if clock.state.testing:
                self._backlog.settle()
                return
            # A span of a stopped session says so while it is open.
            if STOPPING and self.guard.may_be_stopped(
                span.get_span_context()[0], named_session(context)
            ):
                self._backlog.settle()
            if self._timer.idle:
                self._timer.wake()
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("on_start", fault)

    def on_end(self, span: ReadableSpan) -> None:
        """Notes a span that ended, if it may be of interest. Takes no lock of ours."""
        try:
            if not self._on or self._ignores(span):
                return
            if (clock.state.off or clock.state.only) and off(self.guard):
                return
            self._append((span, named_session(), None, now(), True))
            if clock.state.testing:
                self._backlog.settle()
                return
            if self._at_end:
                self._backlog.settle()
            elif len(self._events) >= MOST:
                self._backlog.press()
            if self._timer.idle:
                self._timer.wake()
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("on_end", fault)

    def shutdown(self) -> None:
        """Judges what waits, counts the calls held back, and stops."""
        self._on = False
        with swallow(self.faults, "shutdown.timer"):
            self._timer.stop()
        self.guard.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Judges what waits, and stores and sends it.

        Args:
            timeout_millis: How long, at most; never longer than `tuning.stores.flush_s`.

        Returns:
            Whether the store and the webhook have taken everything. After a False the SDK flushes
            none of the processors that were added later.
        """
        flushed = attempt(self.faults, "force_flush", self.guard.flush, timeout_millis / 1e3)
        return flushed is True


_LONGEST_S: Final = 5.0
"""Longest sleep: the machine's clock may be set, and stops while the machine sleeps."""
_SHORTEST_S: Final = 0.01
"""Shortest sleep: at most a hundred ticks a second, however close deadlines are."""
TOGETHER_S: Final = 0.02
"""Seconds that spans wait for others to be judged with: done for many in a row, it costs half. A
call that hangs is noticed as much later at most, and a crash loses as much at most. A model call
takes longer, so that an agent that asks after it finds nothing left to do."""
_SLICE: Final = 32
"""Events after which the thread gives way to others: three milliseconds. The interpreter switches
after five by itself, and fewer events read at a time cost more each."""


class WatchdogThread:
    """Ticks a guard at its next deadline, and sleeps while there is none.

    The thread is a daemon. The first span starts it, also in the child of a fork. It holds the
    guard weakly.

    Attributes:
        idle: Whether it looks at nothing in a moment: who adds to the backlog has to wake it.
        process: Id of the process that started it; 0 before and after, and in the child of a fork.
    """

    def __init__(self, guard: LoopGuard) -> None:
        # Without a callback, which could run during interpreter shutdown.
        self._guard = weakref.ref(guard)
        self._faults = guard.faults
        self._lock = new_lock()
        self._work = Signal()
        self._stopped = False
        self.process = 0
        self.idle = True
        self._registered = False
        ticks(self)
        reset_after_fork(self)

    def forked(self) -> None:
        """Resets in the child of a fork, which has no such thread."""
        self._lock, self._work, self.process = new_lock(), Signal(), 0
        self.idle = True

    def wake(self) -> None:
        """Wakes the thread, as something waits; starts it where there is none."""
        self.idle = False  # first: a thread that ends meanwhile says that it is idle
        if not self.process:
            self._start()
            # Where none can be had, the next span tries again.
            self.idle = not self.process
        self._work.set()

    def tick(self) -> None:
        """Ticks the guard now, on the calling thread; for tests that move the clock."""
        guard = self._guard()
        if guard is not None and not self._stopped and not off(guard):
            with swallow(self._faults, "timer"):
                guard.tick(now())

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._work.set()

    def _start(self) -> None:
        ours = started = False
        try:
            with self._lock:
                if self._stopped or self.process:
                    return
                ours, self.process, self._work = True, os.getpid(), Signal()
                if not self._registered:
                    # With the first span, and so called before the providers shut themselves down.
                    self._registered = True
                    atexit.register(_at_exit, self._guard)
            wake_by(self._work)
            # Not with the lock: where threads are gevent's, others run until this has started.
            started = start_thread("timer", self._run, self._work)
        finally:
            if ours and not started:
                self.process = 0

    def _run(self, work: Signal) -> None:
        try:
            self._watch(work)
        finally:
            # A listener may end it, as `sys.exit()` does: the next span starts another.
            if work is self._work:
                self.process, self.idle = 0, True

    def _watch(self, work: Signal) -> None:
        # An interrupt of `_start` may leave a thread that another one stands in for.
        while work is self._work and not self._stopped:
            # Cleared first: what arrives after this sets it again.
            work.clear()
            with swallow(self._faults, "timer"):
                settle()
            guard = self._guard()
            if guard is None:
                return
            if deterministic() or off(guard):
                del guard
                self.idle = True
                work.wait(_LONGEST_S)
                continue
            with swallow(self._faults, "timer"):
                self._settle(guard)
                guard.tick(now())
            due = guard.due
            # In this order: who adds to the backlog after this wakes the thread.
            self.idle = True
            waits = bool(guard.backlog.events)
            del guard
            if self._stopped:
                return
            if waits:
                self.idle = False
                work.wait(TOGETHER_S)
                continue
            # Wakes now and then to check that the guard still exists.
            if work.wait(_LONGEST_S if due == NEVER else _seconds_until(due)):
                # Something began to wait: soon others wait with it.
                time.sleep(TOGETHER_S)

    @staticmethod
    def _settle(guard: LoopGuard) -> None:
        """Judges what waits by now, a few events at a time."""
        backlog = guard.backlog
        left, backlog.attended = len(backlog.events), True
        try:
            while left > 0:
                backlog.settle(_SLICE)
                left -= _SLICE
                # Who waits for the interpreter gets it.
                time.sleep(0)
        finally:
            backlog.attended = False


def _at_exit(reference: weakref.ref[LoopGuard]) -> None:
    guard = reference()
    if guard is not None:
        with swallow(guard.faults, "timer"):
            guard.settle()
            guard.telemetry.close()


def _seconds_until(due: int) -> float:
    return min(max((due - now()) / 1e9, _SHORTEST_S), _LONGEST_S)
