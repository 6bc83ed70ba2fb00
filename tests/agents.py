"""A small agent for tests: spans as the GenAI conventions write them."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import StatusCode, Tracer

from otel_loopguard import LoopGuard


def settle() -> None:
    """Everything that ended by now is judged, and everybody who listens has heard of it."""
    for guard in LoopGuard.all_attached():
        guard.settle()


class Ended(SpanProcessor):
    """Keeps the ended spans, in order."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def named(self, prefix: str) -> list[ReadableSpan]:
        """Ended spans whose name starts so."""
        return [span for span in self.spans if span.name.startswith(prefix)]


def provider_with(*processors: SpanProcessor) -> TracerProvider:
    """A provider with these processors, shut down by nobody."""
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


def tool_call(
    tracer: Tracer, tool: str = "search", args: object = '{"q": "x"}',
    result: object = "nothing found",
    more: Mapping[str, str] | None = None, *, error: str | None = None,
) -> trace.Span:  # fmt: skip
    """One ended tool span with arguments at its start and the result, or an error, at its end."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **(more or {})}
    if args is not None:
        attributes["gen_ai.tool.call.arguments"] = args  # type: ignore[assignment]
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes) as span:
        if error is not None:
            span.set_status(StatusCode.ERROR, error)
        elif result is not None:
            span.set_attribute("gen_ai.tool.call.result", result)  # type: ignore[arg-type]
    return span


def agent(tracer: Tracer, **attributes: str) -> trace._AgnosticContextManager[trace.Span]:
    """An open `invoke_agent` span."""
    known = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    more = {name.replace("__", "."): value for name, value in attributes.items()}
    return tracer.start_as_current_span("invoke_agent a", attributes=known | more)
