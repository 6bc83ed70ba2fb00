"""Vercel AI SDK: `ai.operationId`, `ai.toolCall.*`, `ai.usage.*`.

https://ai-sdk.dev/docs/ai-sdk-core/telemetry. Results are JSON text: a string has quotes. opencode
writes it too; a command that fails ends well there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.coding_tools import opencode_output
from otel_loopguard.spans.messages import asked, written
from otel_loopguard.spans.steps import begin, captured, fail, failed
from otel_loopguard.spans.values import first_count, identifier, parsed, text, unquoted, within

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_CALLS = (".doGenerate", ".doStream")
_IN = ("gen_ai.usage.input_tokens", "ai.usage.inputTokens", "ai.usage.promptTokens")
_OUT = ("gen_ai.usage.output_tokens", "ai.usage.outputTokens", "ai.usage.completionTokens")


class Vercel:
    """Reads spans that have `ai.operationId`."""

    name = "vercel"
    marks = frozenset(("ai.operationId",))
    scopes = ("ai", "opencode")
    key_order = 2
    session_keys = (
        "ai.telemetry.metadata.sessionId",
        "ai.telemetry.metadata.threadId",
        "ai.telemetry.metadata.conversationId",
    )
    fallback_agent_keys = ("ai.telemetry.functionId",)
    key_prefixes = ("ai.",)
    call_words: ClassVar = {"ai.operationId": frozenset(("ai.toolCall",))}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without an operation."""
        operation = span.attributes.get("ai.operationId")
        if not isinstance(operation, str):
            return None
        if operation == "ai.toolCall":
            return failed(_tool(span), span)
        if operation.endswith(_CALLS):
            return failed(_model(span), span)
        function = text(span.attributes.get("ai.telemetry.functionId"))
        # opencode has a loop of its own, and asks for one step at a time.
        whole = operation in ("ai.generateText", "ai.streamText") and span.scope != "opencode"
        step = begin(span, Kind.AGENT if whole else Kind.OTHER, function or operation)
        if whole:
            step.args = _instruction(span)
            step.outcome = written(captured(span, "ai.response.text")) or None
        return failed(step, span)


def _instruction(span: SpanView) -> str | None:
    """The prompt of a run, or the newest message of the user in it."""
    given = parsed(captured(span, "ai.prompt"))
    prompt = within(given, "prompt")
    if isinstance(prompt, str):
        return prompt
    return asked(prompt or within(given, "messages"))


def _tool(span: SpanView) -> Step:
    attributes = span.attributes
    step = begin(span, Kind.TOOL, text(attributes.get("ai.toolCall.name")))
    step.call_id = identifier(attributes.get("ai.toolCall.id"))
    step.args = captured(span, "ai.toolCall.args", "ai.toolCall.input")
    step.outcome = unquoted(captured(span, "ai.toolCall.result", "ai.toolCall.output"))
    step.outcome, code = opencode_output(step.outcome)
    if code:
        fail(step, step.outcome)
    return step


def _model(span: SpanView) -> Step:
    attributes = span.attributes
    model = text(attributes.get("ai.response.model")) or text(attributes.get("ai.model.id"))
    step = begin(span, Kind.MODEL, model or span.name)
    step.model = model
    step.tokens_in = first_count(attributes, _IN)
    step.tokens_out = first_count(attributes, _OUT)
    step.text = written(captured(span, "ai.response.text"))
    if step.text is None and "ai.response.toolCalls" in attributes:
        step.text = ""
    return step
