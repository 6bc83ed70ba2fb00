"""Spans as instrumentations write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.views import RecordedSpan

if TYPE_CHECKING:
    from otel_loopguard.core import Step

PARIS = '{"query": "weather in Paris"}'
NOTHING = "no results for weather in Paris"
BROKEN = "broken backend for x=1"
THROWN = (("exception", {"exception.type": "ValueError", "exception.message": BROKEN}),)


def read(span: RecordedSpan) -> Step:
    """The step of a span that has one."""
    step = Reader().read(span)
    assert step is not None
    return step


def ended(name: str, scope: str, attributes: dict[str, object], **more: Any) -> RecordedSpan:
    """A span that started at 1 and ended at 9."""
    return RecordedSpan(
        name=name,
        scope=scope,
        attributes=attributes,
        start=1,
        end=9,
        **more,
    )


def ended_oi(name: str, library: str, attributes: dict[str, object], **more: Any) -> RecordedSpan:
    """A span of an OpenInference instrumentation."""
    return ended(name, f"openinference.instrumentation.{library}", attributes, **more)


TOOL = "openinference.span.kind"
EXECUTE: dict[str, object] = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.id": "call_0",
}
OI: dict[str, object] = {TOOL: "TOOL", "tool.name": "search", "input.value": PARIS}
SCHEMA = '{"properties": {"query": {"type": "string"}}, "type": "object"}'
ENVELOPE = '{"input_str": "{\'query\': \'weather in Paris\'}", "tags": ["seq:step:1"], '
MESSAGE = f'"content": "{NOTHING}", "type": "tool", "name": "search", "tool_call_id": "call_0"'
