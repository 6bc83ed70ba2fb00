"""Span to step: what instrumentations write, read as one kind of step, each call once."""

from otel_loopguard.dialects.agents import RUNS, holds_runs, is_message, is_task, tells_late
from otel_loopguard.dialects.dialect import Dialect
from otel_loopguard.dialects.handoffs import as_handoff, hands_off
from otel_loopguard.dialects.once import Once
from otel_loopguard.dialects.reader import Reader
from otel_loopguard.dialects.registry import register, registered
from otel_loopguard.dialects.scopes import Interest
from otel_loopguard.dialects.tasks import plan_above
from otel_loopguard.dialects.view import RecordedSpan, SpanView, Status

__all__ = [
    "RUNS",
    "Dialect",
    "Interest",
    "Once",
    "Reader",
    "RecordedSpan",
    "SpanView",
    "Status",
    "as_handoff",
    "hands_off",
    "holds_runs",
    "is_message",
    "is_task",
    "plan_above",
    "register",
    "registered",
    "tells_late",
]
