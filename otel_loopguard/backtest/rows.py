"""Rows of a table as spans and steps.

Source of the columns of spans: opentelemetry-collector-contrib `exporter/clickhouseexporter`, table
`otel_traces` (times in nanoseconds, enums by name, `Events.*` as lists side by side).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from itertools import zip_longest
from typing import Any, Final, cast

from otel_loopguard._util.fields import (
    identifier,
    instant,
    integer,
    is_map,
    mapping,
    sequence,
    text,
    time,
)
from otel_loopguard.engine import Kind, RecordedSpan, Step
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.formats import KINDS, STATUSES
from otel_loopguard.replay.recording import Oversized, parse_json

SPAN: Final = "span"
RUN: Final = "run"
STEP: Final = "step"
"""Forms of a row: a span, the head of a labelled run, a step of it."""


LABEL: Final = ("Loop", "loop")
"""Columns of the label of a session; the last one that says something counts."""
TRUTHS: Final[Mapping[object, bool]] = {
    True: True, False: False, "true": True, "false": False, "1": True, "0": False,
}  # fmt: skip

OPEN: Final = "open"
"""The `Duration` of a recorded span that had not ended when it was exported."""


class BrokenRow(ValueError):  # noqa: N818  # it says what the row is
    """A row that cannot be read; the message has the reason, and nothing of the row's content."""


def span_of(row: Mapping[str, object]) -> RecordedSpan:
    """A span from a row in the columns of the ClickHouse exporter."""
    trace_id = identifier(row.get("TraceId"), 16)
    span_id = identifier(row.get("SpanId"), 8)
    if not trace_id or not span_id:
        raise BrokenRow("a span has no valid trace id and span id")
    start = _nanoseconds(row.get("Timestamp"))
    if start is None:
        raise BrokenRow("a span has no valid `Timestamp`")
    duration = integer(row.get("Duration"))
    kind = text(row.get("SpanKind")).upper().removeprefix("SPAN_KIND_")
    status = text(row.get("StatusCode")).upper().removeprefix("STATUS_CODE_")
    return RecordedSpan(
        name=text(row.get("SpanName")),
        scope=text(row.get("ScopeName")),
        kind=kind if kind in KINDS else "INTERNAL",
        trace_id=trace_id,
        span_id=span_id,
        parent_id=identifier(row.get("ParentSpanId"), 8) or None,
        start=start,
        end=None if duration is None or duration < 0 else start + duration,
        attributes=_attributes(row.get("SpanAttributes"), "SpanAttributes"),
        events=_events(row),
        status=STATUSES.get(status, "unset"),
        description=text(row.get("StatusMessage")) or None,
    )


def label_of(row: Mapping[str, object]) -> bool | None:
    """The label of a row: true if its session is a loop; None if it has none."""
    found = None
    for name in LABEL:
        value = row.get(name)
        if isinstance(value, str):
            value = value.lower()
        if value is None or value == "":
            continue
        # Numbers that are equal have equal hashes: 1.0 is True.
        found = TRUTHS.get(value) if isinstance(value, (str, int, float)) else None
        if found is None:
            raise BrokenRow(f"`{name}` of a span is neither true nor false, and labels nothing")
    return found


def row_of(span: RecordedSpan) -> dict[str, object]:
    """The row of a span, in the same columns; attributes keep their types."""
    return {
        "Timestamp": span.start,
        "TraceId": f"{span.trace_id:032x}",
        "SpanId": f"{span.span_id:016x}",
        "ParentSpanId": "" if span.parent_id is None else f"{span.parent_id:016x}",
        "SpanName": span.name,
        "SpanKind": span.kind,
        "ScopeName": span.scope,
        "SpanAttributes": span.attributes,
        "Duration": OPEN if span.end is None else max(0, span.end - span.start),
        "StatusCode": span.status,
        "StatusMessage": span.description,
        "Events": [{"Name": name, "Attributes": held} for name, held in span.events],
    }


def _attributes(value: object, column: str) -> Mapping[str, object]:
    if is_map(value):
        return value
    if isinstance(value, str) and value:
        try:
            value = parsed(value)
        except ValueError:
            value = ()
    if value is None or value == "":
        return {}
    if not is_map(value):
        raise BrokenRow(f"`{column}` of a span holds no names and values")
    return value


def _events(row: Mapping[str, object]) -> list[tuple[str, Mapping[str, object]]]:
    listed = row.get("Events")
    if not listed and "Events.Name" not in row:
        return []
    nested = mapping(listed)
    names = sequence(nested.get("Name", row.get("Events.Name")))
    held = sequence(nested.get("Attributes", row.get("Events.Attributes")))
    if names:
        pairs = zip_longest(names, held[: len(names)])
        return [(text(name), mapping(attributes)) for name, attributes in pairs]
    return [
        (
            text(event.get("Name", event.get("name"))),
            _attributes(event.get("Attributes", event.get("attributes")), "Events"),
        )
        for event in map(mapping, sequence(listed))
        if event
    ]


def _nanoseconds(value: object) -> int | None:
    """A time as nanoseconds since the epoch, or as text with up to nine digits of a second."""
    if value == 0:
        return 0
    return time(value) or (instant(value) if isinstance(value, str) else None) or None


_FIELDS: Final = tuple(each.name for each in fields(Step) if each.name != "reading")


def entry_of(step: Step) -> dict[str, object]:
    """The fields of a step that hold something."""
    found = {name: getattr(step, name) for name in _FIELDS}
    return {
        name: value.value if isinstance(value, Kind) else value
        for name, value in found.items()
        if value is not None
    }


def step_of(entry: Mapping[str, object]) -> Step:
    """The step of such fields."""
    known: dict[str, Any] = dict(entry)
    known["kind"] = Kind(known["kind"])
    if "tasks" in known:
        known["tasks"] = tuple(known["tasks"])
    return Step(**known)


def written(value: object) -> str:
    """A value as JSON text; lone surrogates and NaN stay what they are."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else str(value)


def parsed(value: str) -> object:
    """The value of JSON text, within the bounds of recorded values."""
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except Oversized as error:
        msg = f"a row {error}"
    except (ValueError, RecursionError):
        msg = "a row is not valid JSON"
    raise BrokenRow(msg)


_EXTRAS: Final = {"chdb": "clickhouse", "ray": "ray"}


def load(name: str) -> Any:
    """A module of an extra.

    Raises:
        LoopGuardError: It is not installed; the message has the extra.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        extra = _EXTRAS.get(name.partition(".")[0], "backtest")
        msg = f"this backtest needs the extra `{extra}`: pip install 'otel-loopguard[{extra},cli]'"
        raise LoopGuardError(msg) from missing
