"""An entry of each format, of which a test replaces some fields."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from otel_loopguard.replay import Recording
from tests.agents import provider_with

TRACE: Final = "5b8aa5a2d2c872e8321cf37308d69df2"
SPAN: Final = "5fb397be34d26b51"
SCOPE: Final = "openinference.instrumentation.x"
RUN: Final = "01a215d3-f7c6-717b-8623-9268b536ae7e"
UUID: Final = "01a215d3-f7bf-74ef-a692-1097da473ed9"
PARIS: Final = {"query": "weather in Paris"}
LINE: Final = json.dumps(
    {"id": "r", "steps": [{"kind": "tool", "tool": "t", "args": {}, "output": "o"}]}
)
TIME: Final = 1_795_409_875_000_000_000

LANGFUSE: Final = {
    "id": "c89334a9e35316af", "traceId": TRACE, "type": "TOOL", "name": "search",
    "startTime": "2026-11-21T20:26:12.542Z", "endTime": "2026-11-21T20:26:12.543Z",
    "level": "DEFAULT", "input": PARIS, "output": "none",
}  # fmt: skip
LANGSMITH: Final = {
    "id": RUN, "trace_id": UUID, "run_type": "tool", "name": "search",
    "start_time": "2026-11-21T20:26:12.542000", "end_time": "2026-11-21T20:26:12.543000",
    "inputs": PARIS, "outputs": {"output": "none"},
}  # fmt: skip
PHOENIX: Final = {
    "name": "search", "span_kind": "TOOL", "parent_id": None, "status_code": "OK",
    "start_time": 1795292772542, "end_time": 1795292772543,
    "context.trace_id": TRACE, "context.span_id": "c89334a9e35316af",
    "attributes.tool.name": "search", "attributes.input.value": json.dumps(PARIS),
    "attributes.output.value": "none",
}  # fmt: skip
LABELLED: Final = {
    "kind": "tool", "agent": "a", "tool": "t", "args": {"x": 1}, "output": "out", "error": False,
    "t_start": None, "t_end": None, "tokens": None, "text": None,
}  # fmt: skip


def whole(path: Path | str) -> list[Any]:
    """All entries of a file in which nothing is broken."""
    return list(Recording(str(path), lambda *broken: pytest.fail(str(broken))))


def loaded(value: object) -> object:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def request(span: object, *, scopes: str = "scopeSpans", scope: str = "scope") -> dict[str, Any]:
    group = {scope: {"name": SCOPE, "version": "1"}, "spans": [span]}
    return {"resourceSpans": [{"resource": {}, scopes: [group]}]}


def span(**fields: object) -> dict[str, Any]:
    times = {"startTimeUnixNano": "1000", "endTimeUnixNano": "2000"}
    return {"traceId": TRACE, "spanId": SPAN, "name": "step", **times, **fields}


def attribute(value: object) -> dict[str, Any]:
    return request(span(attributes=[{"key": "k", "value": value}]))


def jaeger(**fields: object) -> dict[str, Any]:
    known = {
        "traceID": TRACE, "spanID": SPAN, "operationName": "step", "processID": "p1",
        "startTime": 1_700_000_000_000_001, "duration": 2_500, "logs": [], "references": [],
        "tags": [{"key": "otel.scope.name", "type": "string", "value": SCOPE}],
    }  # fmt: skip
    made = known | fields
    processes = {"p1": {"serviceName": "agent", "tags": []}}
    return {"data": [{"traceID": made["traceID"], "spans": [made], "processes": processes}]}


def log_records(*records: Mapping[str, str], **resource: str) -> dict[str, Any]:
    written = [
        {"timeUnixNano": str(TIME + place), "attributes": _pairs(each)}
        for place, each in enumerate(records)
    ]
    group = {"scope": {"name": "codex_otel.log_only"}, "logRecords": written}
    shared = {"attributes": _pairs({name.replace("_", "."): resource[name] for name in resource})}
    return {"resourceLogs": [{"resource": shared, "scopeLogs": [group]}]}


def _pairs(attributes: Mapping[str, str]) -> list[Any]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


class Ended:
    """A trace of a tool call that failed below an agent, as the console exporter prints it."""

    def __init__(self, said: str = "") -> None:
        out = io.StringIO()
        self.spans: list[Any] = []
        exporter = ConsoleSpanExporter(out=out, formatter=self._written)
        tracer = provider_with(SimpleSpanProcessor(exporter)).get_tracer("my.agent")
        asked = {"kind": trace.SpanKind.CLIENT, "attributes": {"n": 1, "l": ["a"]}}
        with (
            tracer.start_as_current_span("invoke_agent helper"),
            tracer.start_as_current_span("execute_tool search", **asked) as call,
        ):
            out.write(said)
            call.record_exception(ValueError("no"))
            call.set_status(trace.StatusCode.ERROR, "bad")
        self.text = out.getvalue()

    def _written(self, span: Any) -> str:
        self.spans.append(span)
        return f"{span.to_json()}\n"


BASES: Final[Mapping[str, Callable[[dict[str, Any]], object]]] = {
    "OTLP": lambda fields: request(span(**fields)),
    "Jaeger": lambda fields: jaeger(**fields),
    "console": lambda fields: json.loads(Ended().spans[0].to_json()) | fields,
    "labelled": lambda fields: {"id": "r", "steps": [LABELLED | fields]},
    "Langfuse": lambda fields: LANGFUSE | fields,
    "LangSmith": lambda fields: LANGSMITH | fields,
    "Phoenix": lambda fields: PHOENIX | fields,
    "log record": log_records,
}
"""A file with an entry that has some fields, and the others as usual."""
