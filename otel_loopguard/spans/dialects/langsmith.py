"""LangSmith's OpenTelemetry export: `langsmith.span.kind`, `gen_ai.prompt`, `gen_ai.completion`.

https://docs.langchain.com/langsmith/trace-with-opentelemetry. The spans are made by a background
thread after the fact, with their times put back. `LANGSMITH_HIDE_INPUTS` and `_OUTPUTS` leave `{}`;
a tool without arguments has it too, and is taken for one whose arguments are not known.
`langsmith.trace.session_name` is the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects.genai import NAME as GENAI
from otel_loopguard.spans.dialects.genai import model
from otel_loopguard.spans.errors import failed, set_outcome
from otel_loopguard.spans.keys import chain_kind
from otel_loopguard.spans.messages import written
from otel_loopguard.spans.values import (
    begin,
    captured,
    identifier,
    listing,
    text,
    tool_message,
    within,
)

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "langsmith"

_HIDDEN = "{}"


class LangSmith:
    """Reads spans that have `langsmith.span.kind`."""

    name = NAME
    marks = frozenset(("langsmith.span.kind",))
    builds_on = GENAI
    scopes = ("langsmith*",)
    # `langsmith.trace.session_name` is a project.
    session_keys = ("langsmith.metadata.session_id", "langsmith.metadata.thread_id")
    agent_keys = ("langsmith.metadata.lc_agent_name",)
    key_prefixes = ("langgraph", "langsmith.")
    call_words: ClassVar = {"langsmith.span.kind": frozenset(("tool", "llm", "retriever"))}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a kind."""
        kind = span.attributes.get("langsmith.span.kind")
        if kind == "tool":
            return _tool(span)
        if kind == "llm":
            return _model(span)
        if not isinstance(kind, str):
            return None
        node = text(span.attributes.get("langsmith.metadata.langgraph_node"))
        agent = span.attributes.get("langsmith.metadata.lc_agent_name")
        step = begin(span, chain_kind(span, node, agent), span.name, NAME)
        step.node = node
        return failed(step, span)


def _tool(span: SpanView) -> Step:
    attributes = span.attributes
    name = text(attributes.get("gen_ai.tool.name")) or span.name
    step = begin(span, Kind.TOOL, name, NAME)
    step.node = text(attributes.get("langsmith.metadata.langgraph_node"))
    step.call_id = identifier(attributes.get("gen_ai.tool.call.id"))
    args = captured(span, "gen_ai.prompt")
    step.args = None if args == _HIDDEN else args
    result = captured(span, "gen_ai.completion")
    failed(step, span)
    # A tool that raised has no result either.
    if result is not None and result != _HIDDEN:
        set_outcome(step, tool_message(result))
    return step


def _model(span: SpanView) -> Step:
    step = model(span, NAME)
    attributes = span.attributes
    step.model = step.model or text(attributes.get("langsmith.metadata.ls_model_name"))
    step.name = step.model or span.name
    step.node = text(attributes.get("langsmith.metadata.langgraph_node"))
    completion = captured(span, "gen_ai.completion")
    generations = listing(within(completion, "generations"))
    step.text = written(completion if generations is None else list(_generations(generations)))
    return step


def _generations(generations: list[object] | tuple[object, ...]) -> list[object]:
    """The text of each generation; the message beside it says the same again."""
    inner = [item for group in generations for item in (listing(group) or (group,))]
    return [within(item, "text") for item in inner]
