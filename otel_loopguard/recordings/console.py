"""Spans as opentelemetry-python writes them: `ReadableSpan.to_json()`, and `ConsoleSpanExporter`.

Source of the format: opentelemetry-sdk, `ReadableSpan.to_json` (ids in hex behind `0x`, times in
ISO 8601, enums by name). It does not say the instrumentation scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Final

from otel_loopguard.dialects.view import RecordedSpan, Status
from otel_loopguard.recordings.fields import Report, identifier, is_map, mapping, rows, text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_KINDS: Final = frozenset({"INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"})
_STATUSES: Final[Mapping[str, Status]] = {"OK": "ok", "ERROR": "error"}


def is_span(value: Mapping[str, object]) -> bool:
    """Whether a JSON object is a span in this form."""
    context = value.get("context")
    return is_map(context) and "span_id" in context and "name" in value


def spans(entry: Mapping[str, object], report: Report) -> Iterator[RecordedSpan]:
    """The span of one object; none, and a report, where its ids are not valid.

    Args:
        entry: The object, parsed.
        report: Told why the span was passed over.
    """
    context = mapping(entry.get("context"))
    trace_id = _id(context.get("trace_id"), 16)
    span_id = _id(context.get("span_id"), 8)
    if not trace_id or not span_id:
        report("a span has no valid trace id and span id")
        return
    status = mapping(entry.get("status"))
    kind = text(entry.get("kind")).removeprefix("SpanKind.")
    end = _time(entry.get("end_time"))
    yield RecordedSpan(
        name=text(entry.get("name")),
        kind=kind if kind in _KINDS else "INTERNAL",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_id(entry.get("parent_id"), 8) or None,
        start=_time(entry.get("start_time")) or end or 0,
        end=end,
        attributes=mapping(entry.get("attributes")),
        events=[
            (text(event.get("name")), mapping(event.get("attributes")))
            for event in rows(entry, ("events",), report)
        ],
        status=_STATUSES.get(text(status.get("status_code")), "unset"),
        description=text(status.get("description")) or None,
    )


def _id(value: object, size: int) -> int:
    return identifier(text(value).removeprefix("0x"), size)


def _time(value: object) -> int | None:
    """Nanoseconds since the epoch; None if it is no time. The form has microseconds."""
    try:
        moment = datetime.fromisoformat(text(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
