"""OpenLLMetry (traceloop): `traceloop.span.kind`, `traceloop.entity.*`, beside GenAI names.

https://github.com/traceloop/openllmetry. Its LangChain instrumentation writes GenAI keys with
wrapped values, which is why it comes before GenAI. LangChain puts the id of the call and the step
of the graph into the arguments: six equal calls have six different texts until they are unwrapped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans import values
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.messages import assistant_text
from otel_loopguard.spans.steps import begin, captured, failed, library, set_outcome, tool_in
from otel_loopguard.spans.values import identifier, text, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.spans.views import SpanView

_KINDS = {
    "tool": Kind.TOOL,
    "task": Kind.NODE,
    "agent": Kind.AGENT,
    "workflow": Kind.WORKFLOW,
    "handoff": Kind.HANDOFF,
}
_PROPERTY = "traceloop.association.properties."
_RESULTS: dict[str, Callable[[object], values.Outcome]] = {
    "langchain": values.tool_message,
    "llamaindex": values.tool_output,
    "agno": values.execution_result,
    "mcp": values.protocol_result,
    "": values.shaped_output,
}
_ASYNC_HOOK = re.compile(r"\.a((?:before|after)_(?:agent|model))$")
_NAME_IN_REPR = re.compile(r"\"tool_name\": ?\"([^\"]+)\"")
_PREFIX = "opentelemetry.instrumentation."
_PREFIXES = (_PREFIX, "@traceloop/instrumentation-")
_LIBRARIES = (
    "agno", "anthropic", "bedrock", "cohere", "crewai", "google_generativeai", "groq", "haystack",
    "langchain", "llamaindex", "mcp", "mistralai", "ollama", "openai", "openai_agents",
    "openai_v2", "replicate", "sagemaker", "together", "transformers", "vertexai", "watsonx",
    "writer",
)  # fmt: skip
_TASK = "FunctionTool.task"
_LLAMA_INDEX = ("llamaindex", "")  # console JSON has no scope
_PART = "Runnable"
"""What the classes of chains begin with that LangChain.js puts an agent together of: each is the
root of a trace, so that as a run it would end a turn after every step."""
_INNER = (".wrap_tool_call", ".awrap_tool_call", ".wrap_model_call", ".awrap_model_call")


class OpenLLMetry:
    """Reads spans that have `traceloop.span.kind` or a task of LangGraph."""

    name = "openllmetry"
    marks = frozenset(("traceloop.span.kind", "gen_ai.task.name"))
    builds_on = genai.NAME
    scopes = (
        "traceloop*",
        "@traceloop/*",
        "crewai*",
        *(f"{_PREFIX}{name}{end}" for name in _LIBRARIES for end in ("", ".*")),
    )
    session_keys = (f"{_PROPERTY}session_id", f"{_PROPERTY}thread_id")
    fallback_session_keys = ("crewai.crew.id",)
    agent_keys = (f"{_PROPERTY}lc_agent_name",)
    fallback_agent_keys = ("traceloop.workflow.name", "crewai.agent.role")
    key_prefixes = ("crew", "traceloop.")
    call_words: ClassVar = {"traceloop.span.kind": frozenset(("tool", "task"))}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a kind of traceloop and without a task."""
        attributes = span.attributes
        named = attributes.get("traceloop.span.kind")
        kind = _KINDS.get(named) if isinstance(named, str) else None
        operation = attributes.get("gen_ai.operation.name")
        if kind is None and operation != "execute_task":
            return None
        if kind is Kind.TOOL or (kind is Kind.NODE and _is_tool(span)):
            return _tool(span)
        if kind is Kind.HANDOFF or (kind is Kind.WORKFLOW and operation == "invoke_agent"):
            step = genai.read(span)
            if step is not None and step.kind is Kind.HANDOFF and step.agent is None:
                # `planner → unknown.handoff`: neither target nor source need be written.
                step.agent = text(span.name.partition(" → ")[0])
            return step
        return _enclosing(span, kind or Kind.NODE)


def _is_tool(span: SpanView) -> bool:
    """Two instrumentations have no kind for tools, only tasks: LlamaIndex, LangChain.js."""
    if span.attributes.get("gen_ai.operation.name") == "execute_tool":
        return True
    return span.name == _TASK and library(span.scope, *_PREFIXES) in _LLAMA_INDEX


def _tool(span: SpanView) -> Step:
    step = begin(span, Kind.TOOL, None)
    framework = library(span.scope, *_PREFIXES)
    attributes = span.attributes
    step.call_id = identifier(attributes.get("gen_ai.tool.call.id"))
    args = captured(span, "gen_ai.tool.call.arguments", "traceloop.entity.input")
    if framework in ("langchain", ""):
        step.args, call_id = values.shaped_inputs(args)
        step.call_id = step.call_id or call_id
    elif framework == "mcp":
        inner = within(args, "arguments")
        step.args = args if inner is None else inner
    else:
        step.args = values.call_inputs(args)
    result = captured(span, "gen_ai.tool.call.result", "traceloop.entity.output")
    step.name = _tool_name(span, framework, result)
    if result is not None:
        set_outcome(step, _RESULTS.get(framework, values.plain)(result))
    step.node = text(attributes.get(f"{_PROPERTY}langgraph_node"))
    return failed(step, span) if not step.error or span.status == "error" else step


def _tool_name(span: SpanView, framework: str, result: object) -> str | None:
    attributes = span.attributes
    name = text(attributes.get("gen_ai.tool.name"))
    if name is not None:
        return name
    if framework in _LLAMA_INDEX and span.name == _TASK:
        # The name of the tool stands nowhere but in its result.
        found = text(within(result, "tool_name"))
        if found is None and isinstance(result, str):
            match = _NAME_IN_REPR.search(result)
            found = match[1] if match else None
        return found or "FunctionTool"
    if framework == "langchain" and (name := text(within(result, "kwargs", "name"))) is not None:
        return name  # of LangChain.js the span has the class only
    return text(attributes.get("traceloop.entity.name")) or tool_in(span.name)


def _enclosing(span: SpanView, kind: Kind) -> Step:
    """A graph node, an agent, a workflow; inner chains of a node are of no interest."""
    attributes = span.attributes
    name = text(attributes.get("gen_ai.task.name"))
    name = name or text(attributes.get("traceloop.entity.name"))
    if kind is Kind.AGENT:
        name = text(attributes.get("gen_ai.agent.name")) or span.name.removesuffix(".agent")
    elif kind is Kind.WORKFLOW:
        name = name or text(attributes.get("traceloop.workflow.name"))
        if attributes.get("gen_ai.operation.name") == "workflow" and (name or "").startswith(_PART):
            kind = Kind.OTHER
    step = begin(span, kind, name or span.name)
    if kind is Kind.NODE:
        _node(step, span)
    return failed(step, span)


def _node(step: Step, span: SpanView) -> None:
    """Names a node. An asynchronous hook of a middleware is the node of its synchronous name."""
    name = step.name or ""
    node = text(span.attributes.get(f"{_PROPERTY}langgraph_node"))
    if name.endswith(_INNER) or (node is not None and node != name):
        step.kind = Kind.OTHER
    step.name = _ASYNC_HOOK.sub(r".\1", name)
    step.node = node or step.name
    if step.kind is Kind.NODE:
        got = captured(span, "traceloop.entity.input", "gen_ai.task.input")
        gave = captured(span, "traceloop.entity.output", "gen_ai.task.output")
        step.args = None if got is None else values.run_inputs(got)[0]
        step.outcome = within(gave, "outputs") or gave


class OpenLLMetryModel:
    """Reads model calls in the names of older OpenLLMetry: `llm.request.type`, `llm.usage.*`."""

    name = "openllmetry-old"
    marks = frozenset(("llm.request.type",))
    key_prefixes = ("llm.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of a `chat` or `completion` request, else None."""
        if span.attributes.get("llm.request.type") not in ("chat", "completion"):
            return None
        step = genai.model(span)
        step.text = step.text or assistant_text(captured(span, "gen_ai.completion.0.content"))
        return step
