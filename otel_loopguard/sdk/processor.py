"""The span processor, which passes spans to a guard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import get_current_span

from otel_loopguard._control.context import making, named_session
from otel_loopguard._control.flag import any_stops
from otel_loopguard._util.clock import now, off
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.locks import held, later, settle, waiting
from otel_loopguard.evidence.normalize import compile_patterns
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.guard.timer import WatchdogThread
from otel_loopguard.settings import Settings
from otel_loopguard.spans.keys import INVOKES
from otel_loopguard.spans.reader import TOOL_SPAN, ScopeKind
from otel_loopguard.spans.sdk_views import ActiveSpanView, EndedSpanView, attributes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import Span

    from otel_loopguard.spans.views import SpanView

_AGENT: Final = ScopeKind.AGENT
_MIXED: Final = ScopeKind.MIXED
_NONE: Final = ScopeKind.NONE
_BY_NAME: Final = (TOOL_SPAN, INVOKES)
_SCOPES: Final = 1024
_OWN: Final = "otel_loopguard"
"""The scope of decision spans, which are no steps."""


class LoopGuardSpanProcessor(SpanProcessor):
    """Passes starting and ending spans to a guard.

    ::

        provider.add_span_processor(LoopGuardSpanProcessor())

    It may stand first or last among the processors. No exception leaves it, and it never waits. A
    decision is written on the spans that are still open (the agent span above, the topmost span of
    the trace); for the ended span itself wrap the exporter in `LoopGuardSpanExporter` with the same
    guard.

    Args:
        guard: The guard to feed; a new one by default.
        meter_provider: Records the metrics of the new guard; the global one by default.
        logger_provider: Emits its log events; the global one by default.
        **settings: Settings of the new guard, by name; see `Settings`.

    Raises:
        LoopGuardSettingsError: A setting cannot be used.
        ValueError: Both a guard and settings were given.
    """

    attaches = True
    """Whether its guard counts as fed live: not where an adapter feeds it for want of another."""

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
        if guard is not None and (settings or named):
            msg = f"a guard was given: set {sorted({*settings, *named})} in its Settings instead"
            raise ValueError(msg)
        self.guard = guard or LoopGuard(
            Settings(**settings), meter_provider=meter_provider, logger_provider=logger_provider
        )
        self.faults = self.guard.faults
        self._reader = self.guard.reader
        self._scopes, self._marks = self._reader.scopes, self._reader.marks
        self._numbers = self.guard.telemetry.numbers
        self._passed_over: set[str] = {_OWN}
        self._timer = WatchdogThread(self.guard)
        self._on = self.guard.settings.enabled
        if not self.attaches:
            return
        if self._on:
            compile_patterns()
            self.guard.attach()
        else:
            self.guard.switch_off()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Takes a span that starts; O(1), on the thread that starts it."""
        try:
            scope = span.instrumentation_scope
            name = "" if scope is None else scope.name
            if name in self._passed_over:
                return
            interest = self._scopes.get(name) or self._reader.interest(name)
            if interest is _NONE and len(self._passed_over) < _SCOPES:
                self._passed_over.add(name)
            if interest is _NONE:
                return
            attributes = attributes_of(span)
            if (
                interest is _AGENT
                or not self._marks.isdisjoint(attributes)
                or (interest is _MIXED and not self._defers(span, parent_context))
            ):
                self._started(span, parent_context, name, attributes)
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("_started", fault)

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span that ended; O(size of its arguments and result, bounded)."""
        try:
            scope = span.instrumentation_scope
            name = "" if scope is None else scope.name
            if name in self._passed_over:
                return
            interest = self._scopes.get(name) or self._reader.interest(name)
            attributes = attributes_of(span)
            if (
                interest is _AGENT
                or not self._marks.isdisjoint(attributes)
                or (interest is _MIXED and not self._drops(span))
            ):
                self._ended(span, name, attributes)
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("_ended", fault)

    def shutdown(self) -> None:
        """Counts the calls held back, and stops."""
        self._on = False
        with swallow(self.faults, "shutdown.timer"):
            self._timer.stop()
        self.guard.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Stores and sends what waits; every span is judged when it ends.

        Args:
            timeout_millis: How long, at most; never longer than `tuning.stores.flush_s`.

        Returns:
            Whether the store and the webhook have taken everything. After a False the SDK flushes
            none of the processors that were added later.
        """
        flushed = attempt(self.faults, "force_flush", self.guard.flush, timeout_millis / 1e3)
        return flushed is True

    def _started(
        self, span: Span, context: Context | None, scope: str, attributes: Mapping[str, object]
    ) -> None:
        if held():
            # The garbage collector or a signal handler runs within our own code.
            later(partial(self.on_start, span, context))
            return
        if waiting:
            settle()
        if not self._on or off():
            return
        guard, view = self.guard, ActiveSpanView(span, scope)
        active = guard.active
        known, deferred = active.by_id.get(view.span_id), active.deferred.get(view.span_id)
        if (known is not None and _is_view_of(known.view, span)) or (
            deferred is not None and deferred[0] is span
        ):
            # The provider has this processor, or another one of the same guard, twice.
            active.expect_twice()
            return
        parent_id, above = view.parent_id, None
        if parent_id is not None and not (
            parent_id in active.by_id or parent_id in active.deferred
        ):
            above = _live_parent(context)
        guard.on_start(view, named_session(context), above, attributes)
        if guard.due < self._timer.planned or not self._timer.process:
            self._timer.wake()

    def _ended(self, span: ReadableSpan, scope: str, attributes: Mapping[str, object]) -> None:
        if held():
            later(partial(self.on_end, span))
            return
        if waiting:
            settle()
        if not self._on or off() or self.guard.active.is_second_end(span):
            return
        began, timed = 0, self._numbers.timed
        if timed.left > 1:
            timed.left -= 1
        else:
            began = self._numbers.began()
        guard, view = self.guard, EndedSpanView(span, attributes, scope)
        guard.on_end(view, named_session())
        if guard.due < self._timer.planned or not self._timer.process:
            self._timer.wake()
        if began:
            self._numbers.ended(began, view.trace_id, view.span_id)

    def _defers(self, span: ReadableSpan, context: Context | None) -> bool:
        """Defers a span without anything of interest at its start, where that is safe."""
        if waiting or off() or not self._on:
            return False
        guard, own, parent, name = self.guard, span.get_span_context(), span.parent, span.name
        # Ids are read by their places: a context is a tuple, and its properties are calls.
        if (
            own is None
            or type(name) is not str
            or name.startswith(_BY_NAME)
            or guard.tools.first(name) is not None
            or named_session(context) is not None
            or making() is not None
            # A root span is annotated if its session was stopped.
            or (parent is None and any_stops() and guard.flag_in(own[0]) is not None)
        ):
            return False
        above, active = None, guard.active
        if parent is not None:
            above = parent[1]
            found = active.deferred.get(above)
            if found is not None and above not in active.checked:
                if not self._marks.isdisjoint(attributes_of(cast("ReadableSpan", found[0]))):
                    return False
                active.checked.add(above)
        if not active.defer(own[1], span, above, now()):
            return False
        if active.due < self._timer.planned:
            self._timer.wake()
        return True

    def _drops(self, span: ReadableSpan) -> bool:
        """Forgets a deferred span that ended without anything of interest."""
        own, name = span.get_span_context(), span.name
        if waiting or own is None or type(name) is not str or name.startswith(TOOL_SPAN):
            return False
        return self.guard.active.drop(own[1])


def _is_view_of(view: SpanView, span: ReadableSpan) -> bool:
    return isinstance(view, ActiveSpanView) and view.wraps(span)


def _live_parent(context: Context | None) -> ActiveSpanView | None:
    """Returns the parent span if it is of this process; its scope may be one not followed."""
    parent = get_current_span(context)
    return ActiveSpanView(parent) if isinstance(parent, ReadableSpan) else None
