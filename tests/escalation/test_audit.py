"""What people change is on the trace and in the log, with who and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardSpanProcessor, control, session

if TYPE_CHECKING:
    import pytest


def test_the_agents_span_says_who(caplog: pytest.LogCaptureFixture) -> None:
    """An attribute with the last one, an event for each; the tool's span is left alone."""
    caplog.set_level(logging.INFO, "otel_loopguard")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    processor = LoopGuardSpanProcessor(span_events=True)
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("my.agent")
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    with (
        session("run"),
        tracer.start_as_current_span("invoke_agent helper", attributes=agent),
        tracer.start_as_current_span("execute_tool", attributes={"gen_ai.tool.name": "search"}),
    ):
        control.pause("run", "let me look", by="anna")
        control.resume("run", by="bob", guidance="use the index")
        found = control.escalate("may I?", session="run")
        assert found is not None
        control.answer(found, "skip_task", "no", by="anna")
    provider.shutdown()
    tool, run = exporter.get_finished_spans()
    assert (run.attributes or {})["loopguard.control.by"] == "anna"
    assert (run.attributes or {})["loopguard.decision.action"] == "hint"
    said = [event.attributes or {} for event in run.events if event.name == "loopguard.control"]
    assert [one["loopguard.control.by"] for one in said] == ["anna", "bob", "application", "anna"]
    assert said[0]["loopguard.decision.message"] == "let me look"
    assert said[0]["loopguard.decision.action"] == "pause"
    assert said[3]["loopguard.decision.message"] == "anna answered skip_task: no"
    assert "loopguard.control.by" not in (tool.attributes or {})
    lines = [one.getMessage() for one in caplog.records]
    assert "otel-loopguard: control: session run: anna set pause: let me look" in lines
    answered = "otel-loopguard: control: session run: bob set hint"
    assert any(line.startswith(answered) for line in lines)
