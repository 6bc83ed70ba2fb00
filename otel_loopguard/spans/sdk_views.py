"""Spans of the SDK, seen as dialects see spans: open ones on demand, ended ones at once."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard._util.clock import moves, to_guard_time
from otel_loopguard._util.locks import busy

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_loopguard.core.decision import Annotation
    from otel_loopguard.spans.views import Status as StatusName

# Compared one by one: looking an enum up in a dict, or its `.name`, costs several times as much.
_UNSET, _ERROR, _INTERNAL = StatusCode.UNSET, StatusCode.ERROR, SpanKind.INTERNAL
_NO_CONTEXT = SpanContext(0, 0, is_remote=False)
_ON_SPAN = frozenset({semconv.CALL_FINGERPRINT, semconv.DECISION_ID})
"""What only the span says: views that sort and cut an event's attributes show the rest of it."""
REWRITTEN = "logfire.span_type"
"""On spans whose values logfire scrubs before other processors see the end; the live span still
has all."""


class _SdkSpanView:
    """Base of views: reads at once what never changes on a span, and the rest on demand."""

    __slots__ = ("_span", "parent_id", "scope", "span_id", "start", "trace_id")

    def __init__(self, span: ReadableSpan, scope: object = None) -> None:
        # A context is a tuple of ids; its properties are calls.
        context = span.context or _NO_CONTEXT
        parent, start = span.parent, span.start_time
        if scope is None:
            written_by = span.instrumentation_scope
            scope = "" if written_by is None else written_by.name
        self._span = span
        self.trace_id = context[0]
        self.span_id = context[1]
        self.parent_id = None if parent is None else parent[1]
        self.scope = f"{scope}"  # any object may be a name; text stays the same object
        self.start = start if type(start) is int and not moves else _time(start) or 0

    @property
    def kind(self) -> str:
        kind = self._span.kind
        return "INTERNAL" if kind is _INTERNAL else kind.name

    @property
    def description(self) -> str | None:
        return self._span.status.description


class EndedSpanView(_SdkSpanView):
    """`SpanView` over a span as it is now. What every dialect asks for is read at once."""

    __slots__ = ("_events", "attributes", "end", "name", "start_attributes", "status")

    def __init__(
        self, span: ReadableSpan, attributes: Mapping[str, object] | None = None,
        scope: object = None,
    ) -> None:  # fmt: skip
        _SdkSpanView.__init__(self, span, scope)
        end, code = span.end_time, span.status.status_code
        self.name = f"{span.name}"
        self.end = end if type(end) is int and not moves else _time(end)
        self.attributes = attributes_of(span) if attributes is None else attributes
        self.start_attributes: Mapping[str, object] | None = None
        self._events: Sequence[tuple[str, Mapping[str, object]]] | None = None
        self.status: StatusName = "unset" if code is _UNSET else "error" if code is _ERROR else "ok"

    @property
    def events(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        # The SDK makes them anew each time, and several parts look for the same ones.
        if self._events is None:
            self._events = _events_of(self._span)
        return self._events


class ActiveSpanView(_SdkSpanView):
    """`SpanView` over an open span of the SDK, with what was set on it since.

    Every access to its attributes copies them: for more than one look take a `snapshot`.
    """

    __slots__ = ()

    start_attributes = None

    def snapshot(self) -> EndedSpanView:
        """The span as it is now, its attributes copied once."""
        return EndedSpanView(self._span)

    def wraps(self, span: ReadableSpan) -> bool:
        """True for a view of this very span; another one may have its ids."""
        return self._span is span

    @property
    def name(self) -> str:
        return f"{self._span.name}"

    @property
    def events(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        return _events_of(self._span)

    @property
    def end(self) -> int | None:
        return _time(self._span.end_time)

    @property
    def attributes(self) -> Mapping[str, object]:
        return attributes_of(self._span)

    @property
    def status(self) -> StatusName:
        return self.snapshot().status

    @property
    def sampled(self) -> bool:
        """True if it is exported when it ends."""
        context = self._span.get_span_context()
        return context is not None and context.trace_flags.sampled

    @property
    def is_written(self) -> bool:
        """True if a decision is on it, or can still be put there."""
        span = self._span
        return (isinstance(span, Span) and span.is_recording()) or (
            semconv.DECISION_ACTION in attributes_of(span)
        )

    def annotate(self, annotation: Annotation, *, event: bool = False) -> bool:
        """Writes an annotation on the span; False if it has ended, or its lock is held for long."""
        span = self._open()
        if span is None:
            return False
        with busy():
            span.set_attributes(annotation.attributes)
            if annotation.error is not None:
                span.set_status(Status(StatusCode.ERROR, annotation.error))
        if event:
            self.add_event(annotation)
        return True

    def add_event(self, annotation: Annotation, name: str = semconv.EVENT_DECISION) -> None:
        """Adds an annotation as a span event only, if the span is still open."""
        span = self._open()
        if span is not None:
            shown = annotation.attributes.items()
            with busy():
                span.add_event(name, {key: it for key, it in shown if key not in _ON_SPAN})

    def _open(self) -> Span | None:
        """The span if it can be written on.

        Its lock is not re-entrant, and it may be this thread that holds it: a finalizer or a signal
        handler ended another span while an attribute was set on this one. Other threads let go of
        it in microseconds.
        """
        span = self._span
        if not isinstance(span, Span) or not span.is_recording():
            return None
        lock = getattr(span, "_lock", None)
        for _ in range(20):  # 20 ms: four turns of a thread that was switched off holding it
            if lock is None or not lock.locked():
                return span
            time.sleep(0.001)
        return None


def _time(moment: object) -> int | None:
    """A time of a span by the guard's clock; the SDK lets any object be a time."""
    if isinstance(moment, float):
        moment = int(moment) if math.isfinite(moment) else None
    return to_guard_time(int(moment)) if isinstance(moment, int) else None


def _events_of(span: ReadableSpan) -> Sequence[tuple[str, Mapping[str, object]]]:
    events = span.events
    if not events:
        return ()
    return [(event.name, cast("Mapping[str, object]", event.attributes or {})) for event in events]


def attributes_of(span: ReadableSpan) -> Mapping[str, object]:
    """The attributes of a span as they are now, as a copy."""
    try:
        # A proxy hands `copy` on to the SDK's own container: a plain dict at C speed, where
        # reading key by key would pay Python calls for each.
        return span.attributes.copy()  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess, reportUnknownMemberType, reportUnknownVariableType]
    except AttributeError:
        return dict(cast("Mapping[str, object]", span.attributes or {}))
