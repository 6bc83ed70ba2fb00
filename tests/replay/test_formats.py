"""Spans are read from what OTLP, Jaeger and `ConsoleSpanExporter` of the real SDK write."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from otel_loopguard.replay import Recording
from otel_loopguard.spans.views import RecordedSpan

TRACE = "5b8aa5a2d2c872e8321cf37308d69df2"
SPAN = "5fb397be34d26b51"
SCOPE = "openinference.instrumentation.x"


def request(span: object, *, scopes: str = "scopeSpans", scope: str = "scope") -> dict[str, Any]:
    """An export request of OTLP with this span."""
    group = {scope: {"name": SCOPE, "version": "1"}, "spans": [span]}
    return {"resourceSpans": [{"resource": {}, scopes: [group]}]}


def span(**fields: object) -> dict[str, Any]:
    """A span of OTLP."""
    times = {"startTimeUnixNano": "1000", "endTimeUnixNano": "2000"}
    return {"traceId": TRACE, "spanId": SPAN, "name": "step", **times, **fields}


def attribute(value: object) -> dict[str, Any]:
    return request(span(attributes=[{"key": "k", "value": value}]))


def tag(key: str, value: object, kind: str = "string") -> dict[str, Any]:
    return {"key": key, "type": kind, "value": value}


def jaeger(**fields: object) -> dict[str, Any]:
    """What the API of Jaeger answers, with one span."""
    known = {
        "traceID": TRACE, "spanID": SPAN, "operationName": "step", "processID": "p1",
        "startTime": 1_700_000_000_000_001, "duration": 2_500,
        "tags": [tag("otel.scope.name", SCOPE)], "logs": [], "references": [],
    }  # fmt: skip
    made = known | fields
    processes = {"p1": {"serviceName": "agent", "tags": []}}
    return {"data": [{"traceID": made["traceID"], "spans": [made], "processes": processes}]}


class Ended:
    """A trace of a tool call that failed below an agent, as the console exporter prints it."""

    def __init__(self, said: str = "") -> None:
        out = io.StringIO()
        self.spans: list[ReadableSpan] = []
        exporter = ConsoleSpanExporter(out=out, formatter=self._written)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("my.agent")
        with (
            tracer.start_as_current_span("invoke_agent helper"),
            tracer.start_as_current_span(
                "execute_tool search", kind=trace.SpanKind.CLIENT, attributes={"n": 1, "l": ["a"]}
            ) as call,
        ):
            out.write(said)
            call.record_exception(ValueError("no"))
            call.set_status(trace.StatusCode.ERROR, "bad")
        self.text = out.getvalue()

    def _written(self, span: ReadableSpan) -> str:
        self.spans.append(span)
        return span.to_json() + "\n"


def console(**context: object) -> dict[str, Any]:
    entry = json.loads(Ended().spans[0].to_json())
    entry["context"] |= context
    return entry


def test_a_span_of_otlp_has_all_it_had(read: Any, reports: Any) -> None:
    """Ids, times, kind, status, scope, attributes and events of a span are those of the line."""
    exception = {"key": "exception.type", "value": {"stringValue": "E"}}
    written = span(
        parentSpanId="00000000000000ff",
        kind=3,
        status={"code": 2, "message": "no"},
        attributes=[{"key": "a", "value": {"stringValue": "1"}}],
        events=[{"timeUnixNano": "1500", "name": "exception", "attributes": [exception]}],
    )
    [known] = read(request(written))
    assert (known.trace_id, known.span_id, known.parent_id) == (int(TRACE, 16), int(SPAN, 16), 255)
    assert (known.start, known.end, known.kind, known.name) == (1000, 2000, "CLIENT", "step")
    assert (known.status, known.description, known.scope) == ("error", "no", SCOPE)
    assert known.attributes == {"a": "1"}
    assert known.events == [("exception", {"exception.type": "E"})]
    assert reports == []


def test_a_span_of_jaeger_has_all_it_had(read: Any, reports: Any) -> None:
    """Scope, kind and status come from tags, events from logs, times from microseconds."""
    written = jaeger(
        references=[{"refType": "CHILD_OF", "traceID": TRACE, "spanID": "ff"}],
        tags=[
            tag("otel.scope.name", "my.scope"),
            tag("span.kind", "client"),
            tag("otel.status_code", "ERROR"),
            tag("otel.status_description", "it broke"),
            tag("error", True, "bool"),
            tag("gen_ai.usage.input_tokens", "12", "int64"),
            tag("score", "0.5", "float64"),
            tag("raw", "AAE=", "binary"),
        ],
        logs=[{"timestamp": 1, "fields": [tag("event", "exception"), tag("message", "it broke")]}],
    )
    [known] = read(written)
    assert (known.start, known.end) == (1_700_000_000_000_001_000, 1_700_000_000_002_501_000)
    assert (known.parent_id, known.scope, known.kind) == (255, "my.scope", "CLIENT")
    assert (known.status, known.description) == ("error", "it broke")
    assert known.attributes["gen_ai.usage.input_tokens"] == 12
    assert (known.attributes["score"], known.attributes["raw"]) == (0.5, b"\x00\x01")
    assert known.events == [("exception", {"message": "it broke"})]
    assert reports == []


def test_the_console_exporters_spans_are_read(read: Any, reports: Any) -> None:
    """All that the form says is read: ids, times to the microsecond, attributes, events, status."""
    ended = Ended()
    call, agent = read(ended.text)
    expected, above = ended.spans
    assert reports == []
    assert expected.context is not None
    assert above.context is not None
    assert (call.trace_id, call.span_id) == (expected.context.trace_id, expected.context.span_id)
    assert (call.parent_id, agent.parent_id) == (above.context.span_id, None)
    assert (call.name, agent.name) == ("execute_tool search", "invoke_agent helper")
    assert (call.kind, agent.kind) == ("CLIENT", "INTERNAL")
    # The SDK writes times by way of a float.
    assert call.start == pytest.approx(expected.start_time, abs=2000, rel=0)
    assert call.end == pytest.approx(expected.end_time, abs=2000, rel=0)
    assert call.attributes == {"n": 1, "l": ["a"]}
    assert (call.status, call.description, agent.status) == ("error", "bad", "unset")
    [(event, attributes)] = call.events
    assert (event, attributes["exception.message"]) == ("exception", "no")


def test_what_an_agent_prints_in_between_costs_one_line(read: Any, reports: Any) -> None:
    """Standard output has more than spans: other lines are reported, the spans are read."""
    assert len(read(Ended(said="Hello, I am an agent.\n").text)) == 2
    assert [number for _, number, _ in reports] == [1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "x"}, "x"),
        ({"boolValue": False}, False),
        ({"intValue": "7"}, 7),
        ({"intValue": 7}, 7),
        ({"intValue": "seven"}, "seven"),
        ({"doubleValue": 0.5}, 0.5),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "NaN"}, pytest.approx(math.nan, nan_ok=True)),
        ({"arrayValue": {"values": [{"intValue": 1}, {}]}}, [1, None]),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({"bytesValue": "AAE="}, b"\x00\x01"),
        ({"bytesValue": "?"}, "?"),
        ({"string_value": "x"}, "x"),
        ({}, None),
        ({"newValue": 1}, {"newValue": 1}),
        ("bare", "bare"),
        (0, 0),
    ],
    ids=str,
)
def test_values_of_otlp(read: Any, value: object, expected: object) -> None:
    """Every kind of AnyValue becomes its Python value; what is none of them is kept as it is."""
    [known] = read(attribute(value))
    assert known.attributes == {"k": expected}


def test_a_value_of_otlp_that_is_nested_deep(read: Any) -> None:
    """Below 64 levels it is kept as it stands in the file."""
    value: Any = {"stringValue": "deep"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    [known] = read(attribute(value))
    inner = known.attributes["k"]
    for _ in range(64):
        [inner] = inner
    assert "deep" in json.dumps(inner)


def base64_of(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()


@pytest.mark.parametrize(
    ("document", "ids"),
    [
        pytest.param(
            request(span(traceId=base64_of(TRACE), spanId=base64_of(SPAN))),
            (int(TRACE, 16), int(SPAN, 16), None),
            id="base64, as protobuf's own JSON has it",
        ),
        pytest.param(
            jaeger(traceID="abc", spanID="1", parentSpanID="2", references=None),
            (0xABC, 1, 2),
            id="without leading zeros, with the older field for the parent",
        ),
    ],
)
def test_forms_of_ids(read: Any, document: object, ids: tuple[int, ...]) -> None:
    [known] = read(document)
    assert (known.trace_id, known.span_id, known.parent_id) == ids


@pytest.mark.parametrize(
    "document",
    [
        request(span(traceId="")),
        request(span(traceId="0" * 32)),
        request(span(traceId="xyz")),
        request(span(traceId=TRACE + "00")),
        request(span(traceId="AAE=")),
        request(span(traceId=12)),
        request(span(spanId=None)),
        request(span(spanId="¹" * 16)),
        jaeger(spanID=""),
        console(trace_id=""),
        console(trace_id="0x"),
        console(trace_id="xyz"),
        console(trace_id=None),
        console(trace_id=7),
    ],
)
def test_a_span_without_ids_is_reported(read: Any, reports: Any, document: object) -> None:
    """A span that belongs to no trace is passed over and reported with its line."""
    assert read(document) == []
    assert [each[1:] for each in reports] == [(1, "a span has no valid trace id and span id")]


START = 1_700_000_000_000_001_000


@pytest.mark.parametrize(
    ("document", "start", "end"),
    [
        (request(span(endTimeUnixNano=None)), 1000, 1000),
        (request(span(endTimeUnixNano="0")), 1000, 1000),
        (request(span(startTimeUnixNano=None)), 2000, 2000),
        (request(span(startTimeUnixNano=1000.0)), 1000, 2000),
        (request(span(startTimeUnixNano="9" * 30)), 2000, 2000),
        (request(span(startTimeUnixNano="9" * 5000)), 2000, 2000),
        (request(span(startTimeUnixNano=True)), 2000, 2000),
        (request(span(startTimeUnixNano="-5", endTimeUnixNano=[])), 0, 0),
        (jaeger(duration=0), START, START),
        (jaeger(duration=None), START, None),
        (jaeger(duration=-1), START, None),
        (jaeger(startTime="soon"), 0, None),
    ],
)
def test_times(read: Any, document: object, start: int, end: int | None) -> None:
    """A missing or impossible time is unknown; it takes nothing else with it."""
    [known] = read(document)
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
    ("document", "field", "expected"),
    [
        *(
            (request(span(kind=kind)), "kind", expected)
            for kind, expected in (
                (0, "INTERNAL"), (2, "SERVER"), ("SPAN_KIND_CONSUMER", "CONSUMER"),
                (99, "INTERNAL"), ("SPAN_KIND_NEW", "INTERNAL"), (-1, "INTERNAL"), ([], "INTERNAL"),
            )
        ),
        *(
            (request(span(status={"code": code})), "status", expected)
            for code, expected in (
                (1, "ok"), ("STATUS_CODE_ERROR", "error"), ("STATUS_CODE_X", "unset"), (7, "unset"),
            )
        ),
        *(
            (jaeger(tags=tags), "status", expected)
            for tags, expected in (
                ([tag("error", "true")], "error"), ([tag("error", False, "bool")], "unset"),
                ([tag("otel.status_code", "OK")], "ok"), (None, "unset"),
                ([3, {"key": None}], "unset"),
            )
        ),
    ],
)  # fmt: skip
def test_kinds_and_statuses(read: Any, document: object, field: str, expected: str) -> None:
    """By number or by name, by tags of either generation; an unknown one is the usual one."""
    [known] = read(document)
    assert getattr(known, field) == expected


SNAKE = {"trace_id": TRACE, "span_id": SPAN, "name": "step", "start_time_unix_nano": 1}
DOCUMENTS = {
    "older name of scopes": request(
        span(), scopes="instrumentationLibrarySpans", scope="instrumentationLibrary"
    ),
    "under data": {"data": request(span())},
    "a list under data": {"data": [request(span())]},
    "a list": [request(span())],
    "Tempo": {"trace": {"batches": request(span())["resourceSpans"]}},
    "snake case": {
        "resource_spans": [
            {
                "scope_spans": [
                    {"scope": {"name": SCOPE}, "spans": [SNAKE | {"end_time_unix_nano": 2}]}
                ]
            }
        ]
    },
    "Jaeger": jaeger(),
    "one trace of Jaeger": jaeger()["data"][0],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_wrappings(read: Any, reports: Any, name: str) -> None:
    """The same spans are found in every wrapping that files have, on one line or on many."""
    for text in (json.dumps(DOCUMENTS[name]), json.dumps(DOCUMENTS[name], indent=2)):
        [known] = read(text)
        assert (known.name, known.scope) == ("step", SCOPE)
    assert len(read("\n".join([json.dumps(DOCUMENTS[name])] * 3))) == 3
    assert reports == []


def test_lines_and_a_list_of_console_spans_are_read(read: Any, reports: Any) -> None:
    spans = [span.to_json(indent=0).replace("\n", "") for span in Ended().spans]
    assert all(isinstance(span, RecordedSpan) for span in read("\n".join(spans)))
    assert len(read(f"[{','.join(spans)}]")) == 2
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
