"""The instrumentor adds the live processor, once, and takes it out of work again."""

import logging
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuard, LoopGuardSettingsError, LoopGuardSpanExporter, semconv
from otel_loopguard.sdk import exporter as exporters
from otel_loopguard.sdk.instrumentor import LoopGuardInstrumentor
from tests.agents import settle

TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"query": "weather"}',
    "gen_ai.tool.call.result": "No results were found for this query.",
}


@pytest.fixture
def instrumentor(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopGuardInstrumentor]:
    """The one instrumentor of the process, at rest before and after, without earlier exporters."""
    monkeypatch.setattr(exporters, "_given_settings", WeakKeyDictionary())
    one = LoopGuardInstrumentor()
    yield one
    if one.is_instrumented_by_opentelemetry:
        one.uninstrument()


def loop(provider: TracerProvider, calls: int = 7) -> None:
    """Calls the same tool with the same outcome inside one run, each when the last is judged."""
    tracer = provider.get_tracer("agent")
    with tracer.start_as_current_span("invoke_agent"):
        for _ in range(calls):
            with tracer.start_as_current_span("execute_tool search", attributes=TOOL):
                pass
            settle()


def test_nothing_is_watched_after_uninstrument(instrumentor: LoopGuardInstrumentor) -> None:
    """The processor stays on the provider, which cannot remove it, and does nothing."""
    provider, guard = TracerProvider(), LoopGuard()
    seen: list[int] = []
    instrumentor.instrument(tracer_provider=provider, guard=guard)
    instrumentor.uninstrument()
    guard.on_end = lambda span: seen.append(span.span_id)  # type: ignore[method-assign]
    loop(provider)
    assert seen == []


def test_the_settings_of_an_exporter_hold_where_the_instrumentor_says_nothing(
    instrumentor: LoopGuardInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options on both sides of a configuration file make one guard; a wrong one is explained."""
    with pytest.raises(LoopGuardSettingsError, match="repeat_threshold"):
        instrumentor.instrument(tracer_provider=TracerProvider(), repeat_threshold="often")
    assert not instrumentor.is_instrumented_by_opentelemetry
    made: list[LoopGuard] = []
    attach = LoopGuard.attach
    monkeypatch.setattr(LoopGuard, "attach", lambda self: (made.append(self), attach(self)))
    exporter = LoopGuardSpanExporter("none", repeat_threshold=5, error_threshold=4)
    instrumentor.instrument(tracer_provider=TracerProvider(), repeat_threshold=6)
    (guard,) = made
    assert guard.settings.repeat_threshold == 6
    assert guard.settings.error_threshold == 4
    exporter.shutdown()


def test_an_exporter_made_later_writes_its_decisions(instrumentor: LoopGuardInstrumentor) -> None:
    """Which of the two was first does not matter."""
    provider, memory = TracerProvider(), InMemorySpanExporter()
    instrumentor.instrument(tracer_provider=provider, repeat_threshold=4)
    provider.add_span_processor(BatchSpanProcessor(LoopGuardSpanExporter(memory)))
    loop(provider, calls=5)
    provider.force_flush()
    assert reported(memory) == ["hint", "deny"]
    provider.shutdown()


def reported(memory: InMemorySpanExporter) -> list[object]:
    """Decisions on the exported tool spans."""
    tools = [span for span in memory.get_finished_spans() if span.name == "execute_tool search"]
    found = [(span.attributes or {}).get(semconv.DECISION_ACTION) for span in tools]
    return [action for action in found if action]


def test_a_last_batch_is_not_counted_again(instrumentor: LoopGuardInstrumentor) -> None:
    """Spans that are flushed after the processor ended were seen by it: no second decision."""
    decisions: list[str] = []
    guard = LoopGuard(on_decision=lambda _, decision: decisions.append(str(decision.action)))
    provider, memory = TracerProvider(), InMemorySpanExporter()
    instrumentor.instrument(tracer_provider=provider, guard=guard)
    provider.add_span_processor(BatchSpanProcessor(LoopGuardSpanExporter(memory)))
    loop(provider, calls=3)
    provider.shutdown()
    assert len(memory.get_finished_spans()) == 4
    assert decisions == ["hint"]


def test_a_provider_that_takes_no_processors_is_warned_about(
    instrumentor: LoopGuardInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an SDK there is one clear warning and no error."""
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        instrumentor.instrument(tracer_provider=trace.NoOpTracerProvider())
        instrumentor.uninstrument()
    (message,) = [one.getMessage() for one in caplog.records if one.name == "otel_loopguard"]
    assert "NoOpTracerProvider" in message
    assert "tracer_provider" in message
