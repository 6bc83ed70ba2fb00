"""The span that something is said about, and the context in which it is current."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_loopguard.live import LiveSpan

if TYPE_CHECKING:
    from otel_loopguard.opens import Open


class Place(NamedTuple):
    """A span, by its ids.

    Attributes:
        trace_id: Its trace; 0 if there is none.
        span_id: Its id; 0 if there is none.
        sampled: Whether it is exported.
    """

    trace_id: int = 0
    span_id: int = 0
    sampled: bool = True


def place_of(trace_id: int, span_id: int, opened: Open | None) -> Place:
    """The place of a decision.

    Args:
        trace_id: Trace of the span concerned.
        span_id: Its id.
        opened: It, or the one that was open in its place; None if its start was not seen.
    """
    view = None if opened is None else opened.view
    return Place(trace_id, span_id, view.sampled if isinstance(view, LiveSpan) else True)


def context_of(place: Place) -> Context:
    """A context in which a span is the current one; empty for no span."""
    if not place.trace_id or not place.span_id:
        return Context()
    found = span_context(place.trace_id, place.span_id, sampled=place.sampled)
    return set_span_in_context(NonRecordingSpan(found), Context())


def span_context(trace_id: int, span_id: int, *, sampled: bool = True) -> SpanContext:
    """The context of a span of this process, by its ids."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
