"""The spans of one test: those that ended, with decisions on them, and those still open."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_loopguard.exporter import LoopGuardSpanExporter

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span

    from otel_loopguard.guard import LoopGuard

_KEPT: Final = 10_000


class _Memory(SpanExporter):
    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque(maxlen=_KEPT)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


class Spans(SpanProcessor):
    """Keeps the newest 10,000 spans that ended, and as many that are open.

    It stands behind the live processor, so that each span has its decision when it comes.

    Args:
        guard: The guard whose decisions are put on the spans.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self._memory = _Memory()
        self._exporter = LoopGuardSpanExporter(self._memory, guard)
        self._open: OrderedDict[int, ReadableSpan] = OrderedDict()

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        """Spans that ended, in this order; with the attributes of their decisions."""
        return tuple(self._memory.spans)

    @property
    def open(self) -> tuple[ReadableSpan, ...]:
        """Spans that are open."""
        return tuple(self._open.values())

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Takes a span that starts."""
        del parent_context
        self._open[span.get_span_context().span_id] = span
        while len(self._open) > _KEPT:
            self._open.popitem(last=False)

    def on_end(self, span: ReadableSpan) -> None:
        """Takes a span that ended."""
        context = span.get_span_context()
        if context is not None:
            self._open.pop(context.span_id, None)
        self._exporter.export((span,))
