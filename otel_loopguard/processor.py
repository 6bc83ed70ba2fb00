"""The one line on a tracer provider: spans come in here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import get_current_span

from otel_loopguard.control import named_session
from otel_loopguard.dialects import Interest
from otel_loopguard.faults import hook
from otel_loopguard.guard import LoopGuard
from otel_loopguard.live import EndedSpan, LiveSpan
from otel_loopguard.settings import Settings
from otel_loopguard.timer import Timer

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span


_SCOPES: Final = 1024


class LoopGuardSpanProcessor(SpanProcessor):
    """Shows a guard every span that starts and ends.

    ::

        provider.add_span_processor(LoopGuardSpanProcessor())

    It may stand first or last among the processors. No exception leaves it, and it never waits. A
    decision is written on the spans that are still open (the agent span above, the topmost span of
    the trace); for the ended span itself wrap the exporter in `LoopGuardSpanExporter` with the same
    guard.

    Args:
        guard: The guard to feed; a new one by default.
        **settings: Settings of the new guard, by name; see `Settings`.

    Raises:
        LoopGuardSettingsError: A setting cannot be used.
        ValueError: Both a guard and settings were given.
    """

    def __init__(self, guard: LoopGuard | None = None, **settings: Any) -> None:
        if guard is not None and settings:
            msg = f"a guard was given: set {sorted(settings)} in its Settings instead"
            raise ValueError(msg)
        self.guard = guard or LoopGuard(Settings(**settings))
        self.faults = self.guard.faults
        self._reader = self.guard.reader
        self._passed_over: set[str] = set()
        self._timer = Timer(self.guard)
        self._on = self.guard.settings.enabled
        if self._on:
            self.guard.attach()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Takes a span that starts; O(1), on the thread that starts it."""
        scope = span.instrumentation_scope
        name = "" if scope is None else scope.name
        if name not in self._passed_over:
            self._started(span, name, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span that ended; O(size of its arguments and result, bounded)."""
        scope = span.instrumentation_scope
        name = "" if scope is None else scope.name
        if name not in self._passed_over:
            self._ended(span, name)

    def shutdown(self) -> None:
        """Counts what is held back, and stops listening."""
        self._on = False
        self._timer.stop()
        self.guard.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """There is nothing to flush: every span is judged when it ends."""
        del timeout_millis
        return True

    @hook
    def _started(self, span: Span, scope: str, context: Context | None) -> None:
        interest = self._reader.interest(scope)
        if interest is not Interest.AGENT and not self._concerns(span, scope, interest):
            return
        if self._on:
            view = LiveSpan(span)
            follows = view.parent_id is None or self.guard.follows(view.parent_id)
            self.guard.opened(
                view, named_session(context), None if follows else _live_parent(context)
            )
            self._timer.wake()

    @hook
    def _ended(self, span: ReadableSpan, scope: str) -> None:
        if not self._on:
            return
        if self._reader.interest(scope) is Interest.AGENT or self._reader.marked(
            span.attributes or {}
        ):
            self.guard.closed(EndedSpan(span), named_session())
            self._timer.wake()

    def _concerns(self, span: ReadableSpan, scope: str, interest: Interest) -> bool:
        """Whether a span that starts in a scope not known for agents is followed all the same."""
        if interest is Interest.NONE:
            if len(self._passed_over) < _SCOPES:
                self._passed_over.add(scope)
            return False
        return self._reader.marked(span.attributes or {})


def _live_parent(context: Context | None) -> LiveSpan | None:
    """The span above, if it lives in this process: it may be of a scope that is not followed."""
    parent = get_current_span(context)
    return LiveSpan(parent) if isinstance(parent, ReadableSpan) else None
