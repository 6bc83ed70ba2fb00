"""OTel GenAI semantic conventions: v0.1.0 of their own, and the names of semconv 1.36 to 1.41.

Spans: https://github.com/open-telemetry/semantic-conventions-genai. Written by the official
instrumentations, pydantic-ai, agent-framework, AutoGen, Strands, ADK, MCP and others.
pydantic-ai's format 2 names arguments and result `tool_arguments` and `tool_response`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.messages import assistant_text, user_text
from otel_loopguard.spans.steps import (
    NO_AGENT,
    RUNS,
    after,
    as_transfer,
    begin,
    captured,
    failed,
    tool_in,
)
from otel_loopguard.spans.values import (
    SUSPECT,
    first_count,
    hidden,
    identifier,
    known,
    listing,
    mapping,
    parsed,
    text,
    unquoted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_loopguard.spans.views import SpanView

NAME = "genai"
# Up to Python 3.11 a look at an enum's member costs a call.
_TOOL, _MODEL, _OTHER = Kind.TOOL, Kind.MODEL, Kind.OTHER

KINDS = {
    "execute_tool": _TOOL,
    **dict.fromkeys(("chat", "generate_content", "text_completion"), _MODEL),
    "invoke_agent": Kind.AGENT,
    "invoke_workflow": Kind.WORKFLOW,
    "handle_conversation_turn": Kind.WORKFLOW,
    # Of Strands and AG2: each agent of it would be a run at the root, and so a turn of the user.
    **dict.fromkeys(
        ("invoke_swarm", "invoke_graph", "conversation", "initiate_chats"), Kind.WORKFLOW
    ),
    "execute_task": Kind.NODE,
    "handoff": Kind.HANDOFF,
    "agent_handoff": Kind.HANDOFF,
    # What a program does around its model, as often as it likes: nothing that a model chose, and
    # so no call to judge. Where a model asks for it there is an `execute_tool` span around it.
    # `fetch_response` is a wait; the calls of the answer are read (`messages.fetched`). The model
    # calls of `plan` are steps; of the span itself the plan is read.
    **dict.fromkeys(
        "fetch_response plan create_agent embeddings retrieval search_memory create_memory"
        " update_memory upsert_memory delete_memory create_memory_store"
        " delete_memory_store".split(),
        _OTHER,
    ),
}
"""Kind of a step by `gen_ai.operation.name`; operations that are not listed are `OTHER`, too."""

_MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_TOKENS_IN = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_TOKENS_OUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_DETAILS = "gen_ai.client.inference.operation.details"


def read(span: SpanView) -> Step | None:
    """Step of a span of the GenAI conventions; None without an operation and a tool's name."""
    attributes = span.attributes
    operation = attributes.get("gen_ai.operation.name")
    if operation == "execute_tool":
        return tool(span)
    if not isinstance(operation, str):
        return tool(span) if "gen_ai.tool.name" in attributes else None
    kind = KINDS.get(operation, _OTHER)
    if kind is _MODEL:
        return model(span)
    if kind is Kind.HANDOFF:
        return failed(as_transfer(begin(span, kind, None), span), span)
    return failed(_enclosing(span, kind), span)


def tool(span: SpanView) -> Step:
    """A tool call. Arguments and result stay as they are; identity parses them."""
    get = span.attributes.get
    name = get("gen_ai.tool.name")
    args = get("gen_ai.tool.call.arguments")
    if args is None or hidden(args):
        args = captured(span, "gen_ai.tool.call.arguments", "tool_arguments")
    result = get("gen_ai.tool.call.result")
    if not isinstance(result, str) or result[:1] in SUSPECT:
        result = unquoted(captured(span, "gen_ai.tool.call.result", "tool_response"))
    call_id = get("gen_ai.tool.call.id")
    if not isinstance(name, str) or not name:
        name = tool_in(span.name)
    step = begin(span, _TOOL, name)
    step.call_id = None if call_id is None else identifier(call_id)
    step.args, step.outcome = args, result
    # Reading events is dear, and where all is well and captured there is nothing in them.
    if args is None or result is None or span.status == "error" or get("error.type") is not None:
        if span.events:
            _from_events(step, span)
        failed(step, span)
    return step


def _from_events(step: Step, span: SpanView) -> None:
    """Arguments and result out of events, where the attributes have none."""
    for name, attributes in span.events:
        if step.args is None and name == "gen_ai.tool.message":
            step.args = known(attributes.get("content"))
        elif step.outcome is None and name == "gen_ai.choice":
            step.outcome = known(attributes.get("message"))
        elif name == _DETAILS:
            if step.args is None:
                step.args = _part(attributes.get("gen_ai.input.messages"), "arguments")
            if step.outcome is None:
                step.outcome = _part(attributes.get("gen_ai.output.messages"), "response")


def _part(messages: object, key: str) -> object:
    """Value of a key in the last part of the last message: a tool span has one call."""
    for message in reversed(listing(parsed(known(messages))) or ()):
        for part in reversed(listing((mapping(message) or {}).get("parts")) or ()):
            found = mapping(part)
            if found is not None and key in found:
                return known(found[key])
    return None


def model(span: SpanView) -> Step:
    """A model call, its text out of events too."""
    step = model_step(span, _MODELS, _TOKENS_IN, _TOKENS_OUT, "gen_ai.output.messages")
    if step.text is None and span.events:
        step.text = _text_from_events(span)
    return failed(step, span)


def model_step(
    span: SpanView, models: Sequence[str], tokens_in: Sequence[str], tokens_out: Sequence[str],
    said: str,
) -> Step:  # fmt: skip
    """A model call by the keys of a convention: name of the model, tokens, what it wrote."""
    attributes = span.attributes
    step = begin(span, _MODEL, None)
    named = (text(attributes.get(key)) for key in models)
    step.model = next((name for name in named if name not in (None, "unknown")), None)
    step.name = step.model or after(span.name, "chat ")
    step.tokens_in = first_count(attributes, tokens_in)
    step.tokens_out = first_count(attributes, tokens_out)
    step.text = assistant_text(captured(span, said))
    return step


def _text_from_events(span: SpanView) -> str | None:
    for name, attributes in span.events:
        if name == "gen_ai.choice":
            return assistant_text(known(attributes.get("message")))
        if name == _DETAILS and "gen_ai.output.messages" in attributes:
            return assistant_text(known(attributes["gen_ai.output.messages"]))
    return None


def _enclosing(span: SpanView, kind: Kind) -> Step:
    """An agent run, a workflow or a graph node. Its tokens repeat those of its model calls."""
    attributes = span.attributes
    step = begin(span, kind, None)
    if kind is Kind.AGENT:
        name = identifier(attributes.get("gen_ai.agent.name"))
        if name is None and span.name.endswith(".workflow"):
            step.kind = Kind.WORKFLOW
        step.agent = None if name == NO_AGENT else name
        step.name = step.agent or after(span.name, "invoke_agent ")
        step.args = user_text(captured(span, "gen_ai.input.messages"))
        step.outcome = assistant_text(captured(span, "gen_ai.output.messages")) or None
    elif kind is Kind.WORKFLOW:
        name = text(captured(span, "gen_ai.workflow.name"))
        name = name or identifier(attributes.get("gen_ai.agent.name"))
        step.name = name or after(span.name, f"{attributes['gen_ai.operation.name']} ")
    elif kind is Kind.NODE:
        step.name = text(attributes.get("gen_ai.task.name")) or after(span.name, "execute_task ")
        step.node = step.name
    else:
        step.name = span.name
    return step


class GenAI:
    """Reads spans that have `gen_ai.operation.name`."""

    name = NAME
    marks = frozenset(("gen_ai.operation.name", "gen_ai.tool.name"))
    scopes = (
        "opentelemetry.instrumentation.ag2", "opentelemetry.instrumentation.genai*", "pydantic-ai*",
        "pydantic_ai*", "semantic_kernel*", "smolagents*",
    )  # fmt: skip
    key_order = 0
    session_keys = ("gen_ai.conversation.id",)
    agent_keys = ("gen_ai.agent.name",)
    key_prefixes = ("agent", "gen_ai.", "tool")
    call_words: ClassVar = {
        "gen_ai.operation.name": frozenset(name for name, kind in KINDS.items() if kind not in RUNS)
    }
    read = staticmethod(read)
