"""Formats of recorded spans: console JSON, Jaeger, OTLP.

Source of the format: opentelemetry-sdk, `ReadableSpan.to_json` (ids in hex behind `0x`, times in
ISO 8601, enums by name). It does not say the instrumentation scope.

Source of the format: jaeger `internal/uimodel/model.go` (times in microseconds, tags typed) and the
translation from OTLP in opentelemetry-collector-contrib `pkg/translator/jaeger` (scope, kind and
status become tags, events become logs with the name in the field `event`).

Source of the format: opentelemetry-proto, `docs/specification.md#json-protobuf-encoding` (ids in
hex, 64-bit numbers as text, enums as numbers). Also read, because files have them: ids in base64,
enums by name, snake_case fields, the older `instrumentationLibrarySpans`, and Tempo's `batches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import orjson

from otel_loopguard._util.fields import (
    JsonObject,
    Report,
    decoded,
    first,
    identifier,
    instant,
    integer,
    is_map,
    mapping,
    rows,
    sequence,
    text,
    time,
)
from otel_loopguard.spans.views import RecordedSpan, Status

KINDS: Final = frozenset({"INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"})
STATUSES: Final[Mapping[str, Status]] = {"OK": "ok", "ERROR": "error"}


def known(span: RecordedSpan, report: Report) -> Iterator[RecordedSpan]:
    """The span; none, and a report, where its ids are not valid."""
    if span.trace_id and span.span_id:
        yield span
    else:
        report("a span has no valid trace id and span id")


ENDLESS: Final = "a span has no end time, and counts as ended when it started"


def ended(span: RecordedSpan) -> bool:
    """False if a span had no end; it has its start as such now."""
    if span.end is not None:
        return True
    span.end = span.start
    return False


def is_console(value: JsonObject) -> bool:
    """True of a span as the SDK writes it."""
    context = value.get("context")
    return is_map(context) and "span_id" in context and "name" in value


def console_spans(entry: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The span of one object; none, and a report, where its ids are not valid."""
    context = mapping(entry.get("context"))
    status = mapping(entry.get("status"))
    kind = text(entry.get("kind")).removeprefix("SpanKind.")
    end = instant(entry.get("end_time")) or None
    span = RecordedSpan(
        name=text(entry.get("name")),
        kind=kind if kind in KINDS else "INTERNAL",
        trace_id=_id(context.get("trace_id"), 16),
        span_id=_id(context.get("span_id"), 8),
        parent_id=_id(entry.get("parent_id"), 8) or None,
        start=instant(entry.get("start_time")) or end or 0,
        end=end,
        attributes=mapping(entry.get("attributes")),
        events=[
            (text(event.get("name")), mapping(event.get("attributes")))
            for event in rows(entry, ("events",), report)
        ],
        status=STATUSES.get(text(status.get("status_code")), "unset"),
        description=text(status.get("description")) or None,
    )
    yield from known(span, report)


def _id(value: object, size: int) -> int:
    return identifier(text(value).removeprefix("0x"), size)


def is_jaeger(value: JsonObject) -> bool:
    """True of a trace of Jaeger, whose spans have no context of their own."""
    return "spans" in value and not any(map(is_console, map(mapping, sequence(value["spans"])[:1])))


def jaeger_spans(trace: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The spans of one trace, in their order."""
    whole = trace.get("traceID")
    for entry in rows(trace, ("spans",), report):
        yield from known(_span(entry, whole), report)


def _span(entry: JsonObject, whole: object) -> RecordedSpan:
    trace_id = identifier(entry.get("traceID") or whole, 16)
    start = time(entry.get("startTime"), 1_000)  # microseconds
    tags = _tags(entry.get("tags"))
    kind = text(tags.get("span.kind")).upper()
    return RecordedSpan(
        name=text(entry.get("operationName")),
        scope=text(tags.get("otel.scope.name")) or text(tags.get("otel.library.name")),
        kind=kind if kind in KINDS else "INTERNAL",
        trace_id=trace_id,
        span_id=identifier(entry.get("spanID"), 8),
        parent_id=_parent(entry, trace_id),
        start=start or 0,
        end=_end(start, entry.get("duration")),
        attributes=tags,
        events=[_event(log) for log in map(mapping, sequence(entry.get("logs"))) if log],
        status=_status(tags),
        description=text(tags.get("otel.status_description")) or None,
    )


def _end(start: int | None, duration: object) -> int | None:
    """Start and duration together; a span in a Jaeger store has ended, so 0 is a length."""
    length = integer(duration)
    if start is None or length is None or length < 0:
        return None
    return start + length * 1_000


def _parent(entry: JsonObject, trace_id: int) -> int | None:
    for reference in map(mapping, sequence(entry.get("references"))):
        same = identifier(reference.get("traceID"), 16) in (trace_id, 0)
        if same and reference.get("refType") == "CHILD_OF":
            return identifier(reference.get("spanID"), 8) or None
    return identifier(entry.get("parentSpanID"), 8) or None


def _tags(value: object) -> dict[str, object]:
    tags = (mapping(tag) for tag in sequence(value))
    return {text(tag.get("key")): _typed(tag.get("type"), tag.get("value")) for tag in tags if tag}


def _typed(kind: object, value: object) -> object:
    if kind == "binary":
        return decoded(value)
    if kind in ("int64", "float64", "bool") and isinstance(value, str):
        try:
            return orjson.loads(value.lower())
        except orjson.JSONDecodeError:
            return value
    return value


def _event(log: JsonObject) -> tuple[str, dict[str, object]]:
    fields = _tags(log.get("fields"))
    return text(fields.pop("event", "")), fields


def _status(tags: JsonObject) -> Status:
    code = text(tags.get("otel.status_code")).lower()
    if code == "error" or tags.get("error") in (True, "true"):
        return "error"
    return "ok" if code == "ok" else "unset"


_ROOTS: Final = ("resourceSpans", "resource_spans", "batches")
"""Names of the field that makes a document a trace export request."""

_GROUPS: Final = (
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "instrumentation_library_spans",
)
_SCOPES: Final = ("scope", "instrumentationLibrary", "instrumentation_library")
OTLP_KINDS: Final = ("INTERNAL", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_Name = TypeVar("_Name", bound=str)
OTLP_STATUSES: Final[tuple[Status, ...]] = ("unset", "ok", "error")
_DEPTH: Final = 64  # levels of nested values: content of agents has about ten


def is_otlp(value: JsonObject) -> bool:
    """True of an export request of spans."""
    return any(root in value for root in _ROOTS)


def otlp_spans(document: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The spans of one export request, in their order.

    A span without a valid trace and span id belongs nowhere: it is reported and passed over, and so
    is whatever is not of the form it should have. Only spans that ended are exported: one whose end
    is missing is reported, and taken to end when it starts; a missing start is taken to be the end.
    """
    endless = 0
    for resource in rows(document, _ROOTS, report):
        for group in rows(resource, _GROUPS, report):
            scope = text(mapping(first(group, _SCOPES)).get("name"))
            for entry in rows(group, ("spans",), report):
                for span in known(_otlp_span(entry, scope), report):
                    endless += not ended(span)
                    yield span
    if endless:
        more = f"{endless:,} spans have no end time, and count as ended when they started"
        report(ENDLESS if endless == 1 else more)


def _otlp_span(entry: JsonObject, scope: str) -> RecordedSpan:
    start = time(first(entry, ("startTimeUnixNano", "start_time_unix_nano")))
    end = time(first(entry, ("endTimeUnixNano", "end_time_unix_nano")))
    status = mapping(entry.get("status"))
    return RecordedSpan(
        name=text(entry.get("name")),
        scope=scope,
        kind=_named(entry.get("kind"), "SPAN_KIND_", OTLP_KINDS),
        trace_id=identifier(first(entry, ("traceId", "trace_id")), 16),
        span_id=identifier(first(entry, ("spanId", "span_id")), 8),
        parent_id=identifier(first(entry, ("parentSpanId", "parent_span_id")), 8) or None,
        start=start or end or 0,
        end=end,
        attributes=otlp_attributes(entry.get("attributes")),
        events=[
            (text(mapping(event).get("name")), otlp_attributes(mapping(event).get("attributes")))
            for event in sequence(entry.get("events"))
        ],
        status=_named(status.get("code"), "STATUS_CODE_", OTLP_STATUSES),
        description=text(status.get("message")) or None,
    )


def _named(value: object, prefix: str, names: Sequence[_Name]) -> _Name:
    """The enum's value, by name or by number; the first for any other."""
    if isinstance(value, str) and value.startswith(prefix):
        name = value.removeprefix(prefix).lower()
        return next((each for each in names if each.lower() == name), names[0])
    place = integer(value) or 0
    return names[place] if 0 <= place < len(names) else names[0]


def otlp_attributes(value: object, depth: int = 0) -> dict[str, object]:
    """The attributes of a span, a log record or a resource, by name."""
    found: dict[str, object] = {}
    for pair in sequence(value):
        if not is_map(pair) or not pair:
            continue
        key, inner = pair.get("key"), pair.get("value")
        # Almost all of them, and there may be thousands on a span.
        plain = inner.get("stringValue") if is_map(inner) and len(inner) == 1 else None
        name = key if isinstance(key, str) else ""
        found[name] = otlp_value(inner, depth) if plain is None else plain
    return found


def otlp_value(value: object, depth: int = 0) -> object:
    """The Python value of an AnyValue; what is none, or nested too deep, stays as it is."""
    if not is_map(value) or depth > _DEPTH:
        return value
    for name, inner in value.items():
        read = _READERS.get(name)
        return read(inner, depth + 1) if read else value
    return None


def _double(value: object, _depth: int) -> object:
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return special.get(value, value) if isinstance(value, str) else value


_CASES: Final[Mapping[str, Callable[[object, int], object]]] = {
    "stringValue": lambda value, _: value,
    "boolValue": lambda value, _: value,
    "intValue": lambda value, _: value if (known := integer(value)) is None else known,
    "doubleValue": _double,
    "arrayValue": lambda value, depth: [
        otlp_value(item, depth) for item in sequence(mapping(value).get("values"))
    ],
    "kvlistValue": lambda value, depth: otlp_attributes(mapping(value).get("values"), depth),
    "bytesValue": lambda value, _: decoded(value),
}
_READERS: Final = {**_CASES, **{k.replace("Value", "_value"): read for k, read in _CASES.items()}}
