"""OTLP/JSON: trace export requests, as the Collector's file exporter writes one per line.

Source of the format: opentelemetry-proto, `docs/specification.md#json-protobuf-encoding` (ids in
hex, 64-bit numbers as text, enums as numbers). Also read, because files have them: ids in base64,
enums by name, snake_case fields, the older `instrumentationLibrarySpans`, and Tempo's `batches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from otel_loopguard.dialects.view import RecordedSpan, Status
from otel_loopguard.recordings.fields import (
    Report,
    decoded,
    first,
    identifier,
    integer,
    is_map,
    mapping,
    rows,
    sequence,
    text,
    time,
)

ROOTS: Final = ("resourceSpans", "resource_spans", "batches")
"""Names of the field that makes a document a trace export request."""

_GROUPS: Final = (
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "instrumentation_library_spans",
)
_SCOPES: Final = ("scope", "instrumentationLibrary", "instrumentation_library")
_KINDS: Final = ("INTERNAL", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES: Final[tuple[Status, ...]] = ("unset", "ok", "error")
_DEPTH: Final = 64


def spans(document: Mapping[str, object], report: Report) -> Iterator[RecordedSpan]:
    """The spans of one export request, in the order they stand there.

    A span without a valid trace and span id belongs nowhere: it is reported and passed over, and so
    is whatever is not of the form it should have. A missing end means that the span never ended; a
    missing start is taken to be the end.

    Args:
        document: The request, parsed.
        report: Told what was passed over.
    """
    for resource in rows(document, ROOTS, report):
        for group in rows(resource, _GROUPS, report):
            scope = text(mapping(first(group, _SCOPES)).get("name"))
            for entry in rows(group, ("spans",), report):
                span = _span(entry, scope)
                if span is None:
                    report("a span has no valid trace id and span id")
                else:
                    yield span


def _span(entry: Mapping[str, object], scope: str) -> RecordedSpan | None:
    trace_id = identifier(first(entry, ("traceId", "trace_id")), 16)
    span_id = identifier(first(entry, ("spanId", "span_id")), 8)
    if not trace_id or not span_id:
        return None
    start = time(first(entry, ("startTimeUnixNano", "start_time_unix_nano")))
    end = time(first(entry, ("endTimeUnixNano", "end_time_unix_nano")))
    status = mapping(entry.get("status"))
    return RecordedSpan(
        name=text(entry.get("name")),
        scope=scope,
        kind=_kind(entry.get("kind")),
        trace_id=trace_id,
        span_id=span_id,
        parent_id=identifier(first(entry, ("parentSpanId", "parent_span_id")), 8) or None,
        start=start or end or 0,
        end=end,
        attributes=_attributes(entry.get("attributes"), 0),
        events=[
            (text(mapping(event).get("name")), _attributes(mapping(event).get("attributes"), 0))
            for event in sequence(entry.get("events"))
        ],
        status=_status(status.get("code")),
        description=text(status.get("message")) or None,
    )


def _kind(value: object) -> str:
    if isinstance(value, str) and value.startswith("SPAN_KIND_"):
        name = value.removeprefix("SPAN_KIND_")
        return name if name in _KINDS else "INTERNAL"
    place = integer(value) or 0
    return _KINDS[place] if 0 <= place < len(_KINDS) else "INTERNAL"


def _status(value: object) -> Status:
    if isinstance(value, str) and value.startswith("STATUS_CODE_"):
        for status in _STATUSES:
            if status == value.removeprefix("STATUS_CODE_").lower():
                return status
    place = integer(value) or 0
    return _STATUSES[place] if 0 <= place < len(_STATUSES) else "unset"


def _attributes(value: object, depth: int) -> dict[str, object]:
    pairs = (mapping(pair) for pair in sequence(value))
    return {text(pair.get("key")): _value(pair.get("value"), depth) for pair in pairs if pair}


def _value(value: object, depth: int) -> object:
    """The Python value of an AnyValue; what is none, or nested too deep, stays as it is."""
    if not is_map(value) or depth > _DEPTH:
        return value
    for name, inner in value.items():
        read = _READERS.get(name)
        return read(inner, depth + 1) if read else value
    return None


def _integer(value: object, _depth: int) -> object:
    known = integer(value)
    return value if known is None else known


def _double(value: object, _depth: int) -> object:
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return special.get(value, value) if isinstance(value, str) else value


def _array(value: object, depth: int) -> object:
    return [_value(item, depth) for item in sequence(mapping(value).get("values"))]


def _pairs(value: object, depth: int) -> object:
    return _attributes(mapping(value).get("values"), depth)


def _plain(value: object, _depth: int) -> object:
    return value


def _bytes(value: object, _depth: int) -> object:
    return decoded(value)


_CASES: Final[Mapping[str, Callable[[object, int], object]]] = {
    "stringValue": _plain,
    "boolValue": _plain,
    "intValue": _integer,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _pairs,
    "bytesValue": _bytes,
}
_READERS: Final = {**_CASES, **{k.replace("Value", "_value"): read for k, read in _CASES.items()}}
