"""OTLP/JSON as files have it becomes spans."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.replay import Recording

TRACE = "5b8aa5a2d2c872e8321cf37308d69df2"
SPAN = "5fb397be34d26b51"


def request(span: object, *, scopes: str = "scopeSpans", scope: str = "scope") -> dict[str, Any]:
    group = {scope: {"name": "openinference.instrumentation.x", "version": "1"}, "spans": [span]}
    return {"resourceSpans": [{"resource": {}, scopes: [group]}]}


def span(**fields: object) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "step",
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        **fields,
    }


def attribute(value: object) -> dict[str, Any]:
    return span(attributes=[{"key": "k", "value": value}])


def test_a_span_has_all_it_had(read: Any, reports: Any) -> None:
    """Ids, times, kind, status, scope, attributes and events of a span are those of the line."""
    [known] = read(
        request(
            span(
                parentSpanId="00000000000000ff",
                kind=3,
                status={"code": 2, "message": "no"},
                attributes=[{"key": "a", "value": {"stringValue": "1"}}],
                events=[
                    {
                        "timeUnixNano": "1500",
                        "name": "exception",
                        "attributes": [{"key": "exception.type", "value": {"stringValue": "E"}}],
                    }
                ],
            )
        )
    )
    assert known.trace_id == int(TRACE, 16)
    assert (known.span_id, known.parent_id) == (int(SPAN, 16), 255)
    assert (known.start, known.end, known.kind, known.name) == (1000, 2000, "CLIENT", "step")
    assert (known.status, known.description) == ("error", "no")
    assert known.scope == "openinference.instrumentation.x"
    assert known.attributes == {"a": "1"}
    assert known.events == [("exception", {"exception.type": "E"})]
    assert reports == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"stringValue": "x"}, "x", id="text"),
        pytest.param({"boolValue": False}, False, id="bool"),
        pytest.param({"intValue": "7"}, 7, id="int as text"),
        pytest.param({"intValue": 7}, 7, id="int as number"),
        pytest.param({"intValue": "seven"}, "seven", id="int that is none"),
        pytest.param({"doubleValue": 0.5}, 0.5, id="double"),
        pytest.param({"doubleValue": "Infinity"}, math.inf, id="double as text"),
        pytest.param({"arrayValue": {"values": [{"intValue": 1}, {}]}}, [1, None], id="array"),
        pytest.param(
            {"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}},
            {"a": True},
            id="map",
        ),
        pytest.param({"bytesValue": "AAE="}, b"\x00\x01", id="bytes"),
        pytest.param({"bytesValue": "?"}, "?", id="bytes that are none"),
        pytest.param({"string_value": "x"}, "x", id="snake case"),
        pytest.param({}, None, id="empty"),
        pytest.param({"newValue": 1}, {"newValue": 1}, id="a kind of value yet unknown"),
        pytest.param("bare", "bare", id="no AnyValue"),
        pytest.param(0, 0, id="a bare zero"),
    ],
)
def test_attribute_values(read: Any, value: object, expected: object) -> None:
    """Every kind of AnyValue becomes its Python value; what is none of them is kept as it is."""
    [known] = read(request(attribute(value)))
    assert known.attributes == {"k": expected}


def test_nan(read: Any) -> None:
    """NaN as text is the number NaN."""
    [known] = read(request(attribute({"doubleValue": "NaN"})))
    assert math.isnan(known.attributes["k"])


def test_ids_in_base64(read: Any) -> None:
    """Ids as protobuf's own JSON writes them, in base64, are the same ids."""
    encode = lambda text: base64.b64encode(bytes.fromhex(text)).decode()  # noqa: E731
    [known] = read(request(span(traceId=encode(TRACE), spanId=encode(SPAN))))
    assert (known.trace_id, known.span_id) == (int(TRACE, 16), int(SPAN, 16))


@pytest.mark.parametrize(
    "change",
    [
        {"traceId": ""},
        {"traceId": "0" * 32},
        {"traceId": "xyz"},
        {"traceId": TRACE + "00"},
        {"traceId": "AAE="},
        {"traceId": 12},
        {"spanId": None},
        {"spanId": "¹" * 16},
    ],
    ids=repr,
)
def test_a_span_without_ids_is_reported(read: Any, reports: Any, change: Any) -> None:
    """A span that belongs to no trace is passed over and reported with its line."""
    assert read(request(span(**change))) == []
    [(_, number, why)] = reports
    assert number == 1
    assert "trace id" in why


@pytest.mark.parametrize(
    ("change", "start", "end"),
    [
        pytest.param({"endTimeUnixNano": None}, 1000, 1000, id="no end"),
        pytest.param({"endTimeUnixNano": "0"}, 1000, 1000, id="end zero"),
        pytest.param({"startTimeUnixNano": None}, 2000, 2000, id="no start"),
        pytest.param({"startTimeUnixNano": 1000.0}, 1000, 2000, id="start as a float"),
        pytest.param({"startTimeUnixNano": "9" * 30}, 2000, 2000, id="start out of range"),
        pytest.param({"startTimeUnixNano": "9" * 5000}, 2000, 2000, id="start beyond all limits"),
        pytest.param({"startTimeUnixNano": True}, 2000, 2000, id="start a boolean"),
        pytest.param({"startTimeUnixNano": "-5", "endTimeUnixNano": []}, 0, 0, id="none"),
    ],
)
def test_times(read: Any, change: Any, start: int, end: int | None) -> None:
    """A missing or impossible time is unknown; it takes nothing else with it."""
    [known] = read(request(span(**change)))
    assert (known.start, known.end) == (start, end)


def test_spans_without_an_end_are_counted(read: Any, reports: Any) -> None:
    """Only spans that ended are exported: a broken exporter left it out."""
    document = request(span())
    group = document["resourceSpans"][0]["scopeSpans"][0]
    group["spans"] += [span(spanId=f"{n:016x}", endTimeUnixNano="0") for n in range(1, 4)]
    assert [known.end for known in read(document)] == [2000, 1000, 1000, 1000]
    [(_, number, why)] = reports
    assert (number, why) == (1, "3 spans have no end time, and count as ended when they started")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, "INTERNAL"),
        (2, "SERVER"),
        ("SPAN_KIND_CONSUMER", "CONSUMER"),
        (99, "INTERNAL"),
        ("SPAN_KIND_NEW", "INTERNAL"),
        (-1, "INTERNAL"),
        ([], "INTERNAL"),
    ],
)
def test_kinds(read: Any, kind: object, expected: str) -> None:
    """The kind is read from its number or its name; an unknown one is internal."""
    assert read(request(span(kind=kind)))[0].kind == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [(1, "ok"), ("STATUS_CODE_ERROR", "error"), ("STATUS_CODE_X", "unset"), (7, "unset")],
)
def test_statuses(read: Any, code: object, expected: str) -> None:
    """The status is read from its number or its name."""
    assert read(request(span(status={"code": code})))[0].status == expected


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            request(span(), scopes="instrumentationLibrarySpans", scope="instrumentationLibrary"),
            id="the older name of scopes",
        ),
        pytest.param({"data": request(span())}, id="under data"),
        pytest.param({"data": [request(span())]}, id="a list under data"),
        pytest.param([request(span())], id="a list"),
        pytest.param({"trace": {"batches": request(span())["resourceSpans"]}}, id="Tempo"),
        pytest.param(
            {
                "resource_spans": [
                    {
                        "scope_spans": [
                            {
                                "scope": {"name": "openinference.instrumentation.x"},
                                "spans": [
                                    {"trace_id": TRACE, "span_id": SPAN, "name": "step"}
                                    | {"start_time_unix_nano": 1, "end_time_unix_nano": 2}
                                ],
                            }
                        ]
                    }
                ]
            },
            id="snake case",
        ),
    ],
)
def test_documents(read: Any, reports: Any, document: object) -> None:
    """The same spans are found in every wrapping that files have, on one line or on many."""
    for text in (json.dumps(document), json.dumps(document, indent=2)):
        [known] = read(text)
        assert (known.name, known.scope) == ("step", "openinference.instrumentation.x")
    assert reports == []


def test_bad_neighbours(read: Any, reports: Any) -> None:
    """What is no span is reported; the good spans beside it are read."""
    document = request(span())
    document["resourceSpans"].append(3)
    document["resourceSpans"].append({"scopeSpans": {"spans": []}})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"].append("x")
    assert len(read(document)) == 1
    assert len(reports) == 3


def test_every_capture_is_read(shared: Path) -> None:
    """Every capture gives as many spans as a plain count finds, and nothing is reported."""
    reports: list[object] = []
    captures = sorted((shared / "spans").glob("*.otlp.jsonl"))
    assert captures
    for capture in captures:
        expected = capture.read_text().count('"startTimeUnixNano"')
        found = list(Recording(str(capture), lambda *broken: reports.append(broken)))
        assert len(found) == expected, capture.name
    assert reports == []


def test_trail_is_read(shared: Path) -> None:
    """All spans of the recorded TRAIL runs are read, with attributes, times and parents."""
    path = shared / "traces/trail.otlp.jsonl.gz"
    found = list(Recording(str(path), lambda *broken: pytest.fail(str(broken))))
    assert len(found) == 1995
    assert len({known.trace_id for known in found}) == 70
    with gzip.open(path, "rt") as lines:
        first = json.loads(next(lines))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert found[0].attributes == {
        pair["key"]: pair["value"]["stringValue"] for pair in first["attributes"]
    }


NAMES = re.findall(
    r"\w+",
    "resourceSpans scopeSpans spans scope name traceId spanId attributes key value events status "
    "code kind stringValue arrayValue kvlistValue values bytesValue intValue data x",
)


def test_deep_nesting(read: Any) -> None:
    """A value nested deeper than 64 levels is kept, from there on as it stands in the file."""
    value: Any = {"stringValue": "deep"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    [known] = read(request(attribute(value)))
    inner = known.attributes["k"]
    for _ in range(64):
        [inner] = inner
    assert "deep" in json.dumps(inner)
