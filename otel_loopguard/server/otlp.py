"""OTLP over the wire: requests in protobuf or JSON, plain or gzip, and what is in them.

Source of the format: opentelemetry-proto, `docs/specification.md` (OTLP/HTTP, JSON encoding with
ids in hex, partial success).
"""

from __future__ import annotations

import base64
import binascii
import time
import zlib
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, cast

import orjson
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.proto.trace.v1.trace_pb2 import Status as ProtoStatus

from otel_loopguard._util import fields
from otel_loopguard._util.bounded import oversized
from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard._util.text import parsed_json
from otel_loopguard.engine import Annotation, DecisionRecord, Engine, Event, RecordedSpan
from otel_loopguard.replay import log_records
from otel_loopguard.replay.formats import OTLP_KINDS, OTLP_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from otel_loopguard.server.metrics import Cause

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

RETRY_S: Final = 1
"""Seconds after which a client that got `Busy` may retry: much of the queue is judged by then."""
_IDS: Final = ("traceId", "spanId", "parentSpanId")
_TRACE_BYTES, _SPAN_BYTES = 16, 8
MOST_MESSAGES: Final = 1_000_000
"""Messages within a request, down to attributes and their values: 20,000 spans have no more. Each
takes up to 200 bytes of memory. Empty ones have two bytes, which gzip packs to almost none: eight
requests of 16 kB took 10 GB."""
_TOO_MANY: Final = f"the body has more than {MOST_MESSAGES:,} messages"
_VARINT, _LENGTH, _MORE = 0, 2, 0x80
"""Two wire types of protobuf, and the bit of a byte of a number that another byte follows."""
_FIXED: Final = {1: 8, 5: 4}
"""Bytes of the wire types that have a fixed size."""

_M = TypeVar("_M", bound=Message)
_Value = Union[str, bool, int, float, "Sequence[str]"]


class Refused(Exception):  # noqa: N818  # named after what becomes of the request
    """A request is not taken; the text says why, without its content.

    Attributes:
        cause: Why, for the log and the metrics.
        status: That of HTTP; of 503 the sender may try again.
        code: That of gRPC, for the body of an answer over HTTP.
        headers: Of the answer.
        detail: What only the log says: addresses, and what others answered.
    """

    cause: Cause
    status = 400
    code = 3  # INVALID_ARGUMENT
    headers: Mapping[str, str] = {}
    detail = ""

    @property
    def logged(self) -> str:
        """Why, for the log."""
        return f"{self}: {self.detail:.300}" if self.detail else str(self)


class BadRequest(Refused):
    """A request cannot be read."""

    cause = "bad_request"


class UnknownForm(BadRequest):
    """A request has a content type or an encoding that is not read."""

    status = 415


class TooLarge(BadRequest):
    """A request has more bytes than the server reads."""

    cause = "too_large"
    status = 413


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompresses a body.

    Raises:
        UnknownForm: The encoding is not `gzip`, `deflate` or `identity`.
        BadRequest: The body is damaged.
        TooLarge: It has more than `limit` bytes.
    """
    if encoding in {"", "identity"}:
        return body
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        msg = f"content-encoding {encoding!r:.50} is not supported, expected gzip or deflate"
        raise UnknownForm(msg)
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # either, as its head says
    try:
        data = inflate.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not valid {encoding}: {error}") from error
    if len(data) > limit:
        raise TooLarge(f"the body has more than {limit:,} bytes when decompressed")
    if not inflate.eof:
        raise BadRequest(f"the body is cut: {encoding} ends before its end")
    if inflate.unused_data:
        raise BadRequest(f"the body goes on behind the end of its {encoding}")
    return data


def media_of(content_type: str) -> str:
    """The media type in a header, in small letters."""
    return content_type.partition(";")[0].strip().lower()


def decode(kind: type[_M], body: bytes, media: str) -> _M:
    """Decodes the body of a request.

    Raises:
        UnknownForm: The content type is neither protobuf nor JSON.
        BadRequest: The body is not what it says.
    """
    if media == PROTOBUF:
        if _has_too_many(cast("Descriptor", kind.DESCRIPTOR), body):
            raise TooLarge(_TOO_MANY)
        try:
            return kind.FromString(body)
        except DecodeError as error:
            raise BadRequest("the body is not a valid protobuf message of this endpoint") from error
    if media != JSON:
        msg = f"content-type {media!r:.50} is not supported, expected {PROTOBUF} or {JSON}"
        raise UnknownForm(msg)
    too_much = oversized(body)
    if too_much:
        raise BadRequest(f"the body {too_much}")
    try:
        document = parsed_json(body)
        if not isinstance(document, dict):
            raise ParseError  # noqa: TRY301  # it ends as those of ParseDict
        if _decode_ids(cast("object", document)) > MOST_MESSAGES:
            raise TooLarge(_TOO_MANY)
        return ParseDict(cast("dict[str, Any]", document), kind(), ignore_unknown_fields=True)
    except (ParseError, RecursionError, ValueError) as error:
        raise BadRequest(f"the body is not valid OTLP JSON: {type(error).__name__}") from error


def encode(message: Message, media: str) -> bytes:
    """Encodes a response as its request was."""
    if media == JSON:
        return orjson.dumps(MessageToDict(message))
    return message.SerializeToString()


def _decode_ids(value: object) -> int:
    """OTLP's JSON has ids in hex where protobuf's JSON has base64. Returns how many maps it has."""
    waiting, maps = [value], 0
    while waiting:
        entry = waiting.pop()
        if is_map(entry):
            maps += 1
            for name in _IDS:
                written = entry.get(name)
                if isinstance(written, str):
                    entry[name] = base64.b64encode(binascii.unhexlify(written)).decode()
            waiting.extend(entry.values())
        elif is_list(entry):
            waiting.extend(entry)
    return maps


def _has_too_many(kind: Descriptor, body: bytes) -> bool:
    """True if a body has more than `MOST_MESSAGES`. Of one that is damaged the parser says so."""
    if len(body) <= 2 * MOST_MESSAGES:  # each has a tag and a length
        return False
    count, waiting = 0, [(kind, 0, len(body))]
    while waiting:
        kind, at, end = waiting.pop()
        nested = _nested(kind)
        with suppress(IndexError):
            for tag, begin, size in _fields(body, at, end):
                if tag in nested:
                    count += 1
                    if count > MOST_MESSAGES:
                        return True
                    if size:
                        waiting.append((nested[tag], begin, begin + size))
    return False


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, place and size of the fields that have a length; raises `IndexError` at a broken one."""
    while at < end:
        tag, at = body[at], at + 1
        if tag >= _MORE:
            tag, at = _varint(body, at - 1)
        if tag & 7 == _LENGTH:
            size, at = body[at], at + 1
            if size >= _MORE:
                size, at = _varint(body, at - 1)
            yield tag, at, size
            at += size
        elif tag & 7 == _VARINT:
            _, at = _varint(body, at)
        else:  # the fields of a group, which no message of OTLP has, are looked at, too
            at += _FIXED.get(tag & 7, 0)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it; raises `IndexError` where there is none."""
    value = 0
    for place in range(at, at + 10):
        value |= (body[place] & (_MORE - 1)) << 7 * (place - at)
        if body[place] < _MORE:
            return value, place + 1
    raise IndexError


@cache
def _nested(kind: Descriptor) -> dict[int, Descriptor]:
    """The messages within a message, by their tag on the wire."""
    return {
        field.number << 3 | _LENGTH: field.message_type
        for field in kind.fields
        if field.message_type is not None
    }


def drop_invalid(request: ExportTraceServiceRequest) -> int:
    """Removes spans without a valid trace and span id; returns how many."""
    dropped = 0
    for resource in request.resource_spans:
        for group in resource.scope_spans:
            valid = [span for span in group.spans if _is_valid(span)]
            if len(valid) < len(group.spans):
                dropped += len(group.spans) - len(valid)
                del group.spans[:]
                group.spans.extend(valid)
    return dropped


def _is_valid(span: Span) -> bool:
    return (
        len(span.trace_id) == _TRACE_BYTES
        and len(span.span_id) == _SPAN_BYTES
        and any(span.trace_id)
        and any(span.span_id)
    )


def spans_of(request: ExportTraceServiceRequest) -> Iterator[tuple[Span, RecordedSpan]]:
    """The spans of a request, each with what a guard sees of it."""
    for resource in request.resource_spans:
        for group in resource.scope_spans:
            for span in group.spans:
                yield span, _recorded(span, group.scope.name)


def _recorded(span: Span, scope: str) -> RecordedSpan:
    start, end = map(fields.time, (span.start_time_unix_nano, span.end_time_unix_nano))
    start = start or end or 0
    code = span.status.code
    return RecordedSpan(
        name=span.name,
        scope=scope,
        kind=OTLP_KINDS[span.kind] if 0 <= span.kind < len(OTLP_KINDS) else "INTERNAL",
        trace_id=int.from_bytes(span.trace_id, "big"),
        span_id=int.from_bytes(span.span_id, "big"),
        parent_id=_id(span.parent_span_id, _SPAN_BYTES) or None,
        start=start,
        # Only ended spans are exported: a missing end will not come.
        end=start if end is None else end,
        attributes=attributes_of(span.attributes),
        events=[(event.name, attributes_of(event.attributes)) for event in span.events],
        status=OTLP_STATUSES[code] if 0 <= code < len(OTLP_STATUSES) else "unset",
        description=span.status.message or None,
    )


def log_views(request: ExportLogsServiceRequest) -> list[RecordedSpan]:
    """The log records that a dialect may know, each as a span that ends with it."""
    return log_records.spans_of(_log_records(request))


def _log_records(request: ExportLogsServiceRequest) -> Iterator[log_records.LogRecord]:
    for resource in request.resource_logs:
        shared = attributes_of(resource.resource.attributes)
        for group in resource.scope_logs:
            for record in group.log_records:
                yield log_records.LogRecord(
                    attributes=attributes_of(record.attributes),
                    resource=shared,
                    scope=group.scope.name,
                    event=record.event_name,
                    body=value_of(record.body),
                    time=record.time_unix_nano or record.observed_time_unix_nano,
                    trace_id=_id(record.trace_id, _TRACE_BYTES),
                    span_id=_id(record.span_id, _SPAN_BYTES),
                )


def _id(value: bytes, size: int) -> int:
    """An id; 0 for none, and for what is none: tables keep it."""
    return int.from_bytes(value, "big") if len(value) == size else 0


def attributes_of(pairs: Sequence[KeyValue]) -> dict[str, object]:
    """Attributes as plain Python values; of a key that comes twice the last counts."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: AnyValue) -> object:
    """The Python value of an `AnyValue`; None where it has none."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    return None if kind is None else getattr(value, kind)


def annotate(span: Span, annotation: Annotation) -> None:
    """Writes a decision on a span, in place."""
    known = {pair.key: pair for pair in span.attributes}
    for name, value in annotation.added_to(known.keys()).items():
        _set((known.get(name) or span.attributes.add(key=name)).value, value)
    if annotation.error is not None and span.status.code != ProtoStatus.STATUS_CODE_ERROR:
        span.status.code = ProtoStatus.STATUS_CODE_ERROR
        span.status.message = annotation.error
    for trace_id, span_id in annotation.links:
        span.links.add(
            trace_id=trace_id.to_bytes(_TRACE_BYTES, "big"),
            span_id=span_id.to_bytes(_SPAN_BYTES, "big"),
        )


def decision_record(made: DecisionRecord) -> LogRecord:
    """A decision as a log record."""
    return event_record(Engine.log_event(made))


def event_record(event: Event) -> LogRecord:
    """A log event as OTLP has it."""
    now = time.time_ns()
    record = LogRecord(
        time_unix_nano=event.time or now,
        observed_time_unix_nano=now,
        severity_number=SeverityNumber.ValueType(event.severity.value),
        severity_text=event.severity.name,
        event_name=event.name,
        attributes=key_values(event.attributes),
    )
    record.body.string_value = event.body
    place = event.place
    if place.trace_id and place.span_id:
        record.trace_id = place.trace_id.to_bytes(_TRACE_BYTES, "big")
        record.span_id = place.span_id.to_bytes(_SPAN_BYTES, "big")
    return record


def key_values(values: Mapping[str, _Value]) -> list[KeyValue]:
    """Attributes as OTLP has them."""
    pairs = [KeyValue(key=name) for name in values]
    for pair in pairs:
        _set(pair.value, values[pair.key])
    return pairs


def _set(target: AnyValue, value: _Value) -> None:
    """Writes a Python value into an `AnyValue`."""
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = value
    else:
        for item in value:
            target.array_value.values.add(string_value=item)
