"""logfire's OpenAI Agents instrumentation: plain keys (`name`, `input`) under its own scope.

https://logfire.pydantic.dev/docs/integrations/llms/openai/. Everything is there when the span
starts, but as JSON `null`. pydantic-ai under logfire writes GenAI names and is read as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects.genai import NAME as GENAI
from otel_loopguard.spans.dialects.genai import model
from otel_loopguard.spans.errors import fail, failed
from otel_loopguard.spans.messages import written
from otel_loopguard.spans.values import (
    begin,
    captured,
    identifier,
    listing,
    parsed,
    text,
    unquoted,
    within,
)

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "logfire"

_SCOPE = "logfire.openai_agents"


class Logfire:
    """Reads spans of the scope `logfire.openai_agents`; its keys are too plain to stand alone."""

    name = NAME
    marks = frozenset(("gen_ai.system", "agent_trace_id"))
    builds_on = GENAI
    scopes = ("logfire.openai*",)
    key_prefixes = ("from_agent", "logfire.", "model_", "to_agent")

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None of another scope."""
        if not span.scope.startswith(_SCOPE):
            return None
        template = text(span.attributes.get("logfire.msg_template")) or span.name
        if span.attributes.get("gen_ai.operation.name") == "chat":
            return _model(span)
        if template.startswith("Function: "):
            step = _tool(span)
        elif template.startswith("Handoff: "):
            step = _handoff(span)
        else:
            step = _enclosing(span, template)
        return _failed(step, span)


def _tool(span: SpanView) -> Step:
    name = text(span.attributes.get("name"))
    step = begin(span, Kind.TOOL, name, NAME)
    step.args = _filled(captured(span, "input"))
    step.outcome = _filled(unquoted(captured(span, "output")))
    return step


def _filled(value: object) -> object:
    return None if value == "null" else value


def _handoff(span: SpanView) -> Step:
    attributes = span.attributes
    step = begin(span, Kind.HANDOFF, identifier(attributes.get("to_agent")), NAME)
    step.agent = identifier(attributes.get("from_agent"))
    return step


def _enclosing(span: SpanView, template: str) -> Step:
    attributes = span.attributes
    name = text(attributes.get("name")) or span.name
    step = begin(span, Kind.OTHER, name, NAME)
    if template.startswith("Agent run"):
        step.kind, step.agent = Kind.AGENT, identifier(name)
    elif template.startswith("Turn "):
        step.kind, step.name = Kind.NODE, "turn"
        step.agent = identifier(attributes.get("agent_name"))
    elif "agent_trace_id" in attributes:
        step.kind = Kind.WORKFLOW
        step.session = identifier(attributes.get("group_id"))
    return step


def _model(span: SpanView) -> Step:
    step = model(span, NAME)
    events = listing(parsed(captured(span, "events")))
    if step.text is None and events is not None:
        answers = [event for event in events if within(event, "role") == "assistant"]
        step.text = written(answers[-1:])
    return _failed(step, span)


def _failed(step: Step, span: SpanView) -> Step:
    failed(step, span)
    error = _filled(span.attributes.get("error"))
    if error is not None:
        reason = within(error, "message")
        fail(step, reason if isinstance(reason, str) else error)
    return step
