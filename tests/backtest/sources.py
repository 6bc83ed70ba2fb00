"""Tables of spans and steps for backtests, made of what is recorded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from otel_loopguard.backtest.rows import row_of
from otel_loopguard.replay import Recording
from otel_loopguard.spans.views import RecordedSpan


def spans_of(path: Path) -> list[RecordedSpan]:
    return [entry for entry in Recording(str(path), ignore) if isinstance(entry, RecordedSpan)]


def ignore(_file: str, _line: int, _why: str) -> None: ...


def exported(span: RecordedSpan) -> dict[str, Any]:
    """The row that the ClickHouse exporter writes: all attributes are text."""
    row = row_of(span)
    events: Sequence[Any] = row.pop("Events")  # type: ignore[assignment]
    status = {"StatusCode": span.status.title(), "StatusMessage": span.description or ""}
    return {
        **row, **status, "SpanKind": span.kind.title(), "SpanAttributes": texts(span.attributes),
        "Events.Name": [event["Name"] for event in events],
        "Events.Attributes": [texts(event["Attributes"]) for event in events],
    }  # fmt: skip


def texts(given: Mapping[str, object]) -> dict[str, str]:
    return {key: one if isinstance(one, str) else json.dumps(one) for key, one in given.items()}


def write_spans(rows: Iterable[Mapping[str, Any]], to: Path) -> Path:
    held = pa.map_(pa.string(), pa.string())
    texts = "TraceId SpanId ParentSpanId SpanName SpanKind ScopeName StatusCode StatusMessage"
    kinds = dict.fromkeys(texts.split(), pa.string()) | {
        "Timestamp": pa.timestamp("ns"), "Duration": pa.uint64(), "SpanAttributes": held,
        "Events.Name": pa.list_(pa.string()), "Events.Attributes": pa.list_(held),
    }  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(list(rows), pa.schema(kinds)), to)
    return to
