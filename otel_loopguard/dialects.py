"""Dialects: how one convention writes spans, and how to add one of your own."""

from otel_loopguard.spans.reader import (
    Dialect,
    DialectError,
    Reader,
    register,
    registered,
    unregister,
)
from otel_loopguard.spans.views import RecordedSpan, SpanView, Status

__all__ = [
    "Dialect",
    "DialectError",
    "Reader",
    "RecordedSpan",
    "SpanView",
    "Status",
    "register",
    "registered",
    "unregister",
]
