"""Jaeger's JSON becomes spans."""

from __future__ import annotations

import json
from typing import Any

import pytest


def tag(key: str, value: object, kind: str = "string") -> dict[str, Any]:
    return {"key": key, "type": kind, "value": value}


def trace(**fields: object) -> dict[str, Any]:
    span = {
        "traceID": "5b8aa5a2d2c872e8321cf37308d69df2",
        "spanID": "5fb397be34d26b51",
        "operationName": "execute_tool x",
        "startTime": 1_700_000_000_000_001,
        "duration": 2_500,
        "tags": [],
        "logs": [],
        "references": [],
        "processID": "p1",
        **fields,
    }
    processes = {"p1": {"serviceName": "agent", "tags": []}}
    return {"data": [{"traceID": span["traceID"], "spans": [span], "processes": processes}]}


def one(read: Any, **fields: object) -> Any:
    [span] = read(trace(**fields))
    return span


def test_a_span_has_all_it_had(read: Any, reports: Any) -> None:
    """Ids, times in nanoseconds, parent, scope, kind, status and logs come from Jaeger's fields."""
    span = one(
        read,
        references=[
            {"refType": "CHILD_OF", "traceID": "5b8aa5a2d2c872e8321cf37308d69df2", "spanID": "ff"}
        ],
        tags=[
            tag("otel.scope.name", "my.scope"),
            tag("span.kind", "client"),
            tag("otel.status_code", "ERROR"),
            tag("otel.status_description", "it broke"),
            tag("error", True, "bool"),
            tag("gen_ai.tool.name", "x"),
            tag("gen_ai.usage.input_tokens", "12", "int64"),
            tag("score", "0.5", "float64"),
            tag("raw", "AAE=", "binary"),
        ],
        logs=[
            {
                "timestamp": 1,
                "fields": [tag("event", "exception"), tag("exception.message", "it broke")],
            }
        ],
    )
    assert (span.start, span.end) == (1_700_000_000_000_001_000, 1_700_000_000_002_501_000)
    assert (span.parent_id, span.scope, span.kind) == (255, "my.scope", "CLIENT")
    assert (span.status, span.description) == ("error", "it broke")
    assert span.attributes["gen_ai.usage.input_tokens"] == 12
    assert span.attributes["score"] == 0.5
    assert span.attributes["raw"] == b"\x00\x01"
    assert span.events == [("exception", {"exception.message": "it broke"})]
    assert reports == []


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "many lines"])
def test_forms_of_the_file(read: Any, reports: Any, indent: int | None) -> None:
    """The answer of the API is read on one line or on many, and so is one trace per line."""
    whole = trace()
    assert len(read(json.dumps(whole, indent=indent))) == 1
    assert len(read("\n".join(json.dumps(line) for line in whole["data"] * 3))) == 3
    assert reports == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"duration": 0}, 1_700_000_000_000_001_000, id="no length"),
        pytest.param({"duration": None}, None, id="length unknown"),
        pytest.param({"duration": -1}, None, id="negative length"),
        pytest.param({"startTime": "soon"}, None, id="start unknown"),
    ],
)
def test_ends(read: Any, fields: Any, expected: int | None) -> None:
    """The end is start and duration, or unknown."""
    assert one(read, **fields).end == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([tag("error", "true")], "error"),
        ([tag("error", False, "bool")], "unset"),
        ([tag("otel.status_code", "OK")], "ok"),
        (None, "unset"),
        ([3, {"key": None}], "unset"),
    ],
)
def test_statuses(read: Any, tags: object, expected: str) -> None:
    """A failed span is told by the tag of either generation."""
    assert one(read, tags=tags).status == expected


def test_short_ids_and_parent_field(read: Any) -> None:
    """Ids without leading zeros and the older field for the parent are read."""
    span = one(read, traceID="abc", spanID="1", parentSpanID="2", references=None)
    assert (span.trace_id, span.span_id, span.parent_id) == (0xABC, 1, 2)


def test_a_span_without_ids_is_reported(read: Any, reports: Any) -> None:
    """A span that belongs to no trace is passed over and reported."""
    broken = trace(spanID="")
    assert read(broken) == []
    assert len(reports) == 1
