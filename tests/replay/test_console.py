"""Spans are read as `ReadableSpan.to_json` and `ConsoleSpanExporter` of the real SDK write them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from otel_loopguard.spans.views import RecordedSpan


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
    found = read(Ended(said="Hello, I am an agent.\n").text)
    assert len(found) == 2
    assert [number for _, number, _ in reports] == [1]


def test_one_span_in_a_line_and_a_list_are_read(read: Any, reports: Any) -> None:
    """`to_json(indent=None)` lines and a JSON list of spans are read as well."""
    spans = [span.to_json(indent=0).replace("\n", "") for span in Ended().spans]
    assert all(isinstance(span, RecordedSpan) for span in read("\n".join(spans)))
    assert len(read(f"[{','.join(spans)}]")) == 2
    assert reports == []


@pytest.mark.parametrize("broken", ["", "0x", "xyz", None, 7], ids=repr)
def test_a_span_without_ids_is_reported(read: Any, reports: Any, broken: object) -> None:
    """A span whose trace id is not valid is passed over and reported."""
    entry = json.loads(Ended().spans[0].to_json())
    entry["context"]["trace_id"] = broken
    assert read(entry) == []
    assert [why for _, _, why in reports] == ["a span has no valid trace id and span id"]
