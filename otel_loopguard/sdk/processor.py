"""The span processor, which passes spans to a guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from otel_loopguard._control.context import current_call, named_session
from otel_loopguard._control.flag import STOPPING
from otel_loopguard._util import clock
from otel_loopguard._util.backlog import MOST
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.text import expected
from otel_loopguard.evidence.normalize import compile_patterns
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.guard.timer import WatchdogThread
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
        LoopGuardSettingsError: A setting cannot be used.
        TypeError: What was given is no guard.
        ValueError: Both a guard and settings were given.
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
            msg = expected("a LoopGuard", guard, instead)
            raise TypeError(msg)
        if guard is not None and (settings or named):
            msg = f"a guard was given: set {sorted({*settings, *named})} in its Settings instead"
            raise ValueError(msg)
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
            if not self._on or self._ignores(span) or clock.state.off:
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
            if not self._on or self._ignores(span) or clock.state.off:
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
