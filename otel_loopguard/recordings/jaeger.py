"""Jaeger's JSON, as its UI downloads it and its HTTP API `/api/traces` answers.

Source of the format: jaeger `internal/uimodel/model.go` (times in microseconds, tags typed) and the
translation from OTLP in opentelemetry-collector-contrib `pkg/translator/jaeger` (scope, kind and
status become tags, events become logs with the name in the field `event`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from otel_loopguard.dialects.view import RecordedSpan, Status
from otel_loopguard.recordings.fields import (
    Report,
    decoded,
    identifier,
    integer,
    mapping,
    rows,
    sequence,
    text,
    time,
)

_MICROSECOND: Final = 1000
_KINDS: Final = frozenset({"INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"})


def spans(trace: Mapping[str, object], report: Report) -> Iterator[RecordedSpan]:
    """The spans of one trace, in the order they stand there.

    Args:
        trace: One entry of `data`: an object with `spans`.
        report: Told what was passed over: spans without valid ids, and what is not of the form it
            should have.
    """
    whole = trace.get("traceID")
    for entry in rows(trace, ("spans",), report):
        span = _span(entry, whole)
        if span is None:
            report("a span has no valid trace id and span id")
        else:
            yield span


def _span(entry: Mapping[str, object], whole: object) -> RecordedSpan | None:
    trace_id = identifier(entry.get("traceID") or whole, 16)
    span_id = identifier(entry.get("spanID"), 8)
    if not trace_id or not span_id:
        return None
    start = time(entry.get("startTime"), _MICROSECOND)
    tags = _tags(entry.get("tags"))
    kind = text(tags.get("span.kind")).upper()
    return RecordedSpan(
        name=text(entry.get("operationName")),
        scope=text(tags.get("otel.scope.name")) or text(tags.get("otel.library.name")),
        kind=kind if kind in _KINDS else "INTERNAL",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_parent(entry, trace_id),
        start=start or 0,
        end=_end(start, entry.get("duration")),
        attributes=tags,
        events=[_event(log) for log in rows(entry, ("logs",), _ignore)],
        status=_status(tags),
        description=text(tags.get("otel.status_description")) or None,
    )


def _ignore(_why: str) -> None:
    """A log that is none says nothing about the span it hangs on."""


def _end(start: int | None, duration: object) -> int | None:
    """Start and duration together; a span in a Jaeger store has ended, so 0 is a length."""
    length = integer(duration)
    if start is None or length is None or length < 0:
        return None
    return start + length * _MICROSECOND


def _parent(entry: Mapping[str, object], trace_id: int) -> int | None:
    for reference in rows(entry, ("references",), _ignore):
        same = identifier(reference.get("traceID"), 16) in (trace_id, 0)
        if same and reference.get("refType") == "CHILD_OF":
            return identifier(reference.get("spanID"), 8) or None
    return identifier(entry.get("parentSpanID"), 8) or None


def _tags(value: object) -> dict[str, object]:
    tags = (mapping(tag) for tag in sequence(value))
    return {text(tag.get("key")): _typed(tag.get("type"), tag.get("value")) for tag in tags if tag}


def _typed(kind: object, value: object) -> object:
    if kind == "int64":
        known = integer(value)
        return value if known is None else known
    if kind == "bool" and isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower(), value)
    if kind == "float64" and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return decoded(value) if kind == "binary" else value


def _event(log: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    fields = _tags(log.get("fields"))
    return text(fields.pop("event", "")), fields


def _status(tags: Mapping[str, object]) -> Status:
    code = text(tags.get("otel.status_code")).lower()
    if code == "error" or tags.get("error") in (True, "true"):
        return "error"
    return "ok" if code == "ok" else "unset"
