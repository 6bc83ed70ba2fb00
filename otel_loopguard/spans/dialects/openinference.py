"""OpenInference (Arize): `openinference.span.kind`, `input.value`, `output.value`, `llm.*`.

https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md.
`tool.parameters` is the JSON schema in some instrumentations and the arguments in others, so it is
never read. Arguments and results are wrapped differently by each instrumentation (`_WRAPPED`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans import values
from otel_loopguard.spans.messages import assistant_text, last_answer, user_text
from otel_loopguard.spans.steps import after, begin, captured, failed, library, set_outcome, tool_in
from otel_loopguard.spans.values import (
    count,
    entry,
    hidden,
    identifier,
    mapping,
    parsed,
    text,
    unquoted,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_loopguard.spans.views import SpanView

_KINDS = {"TOOL": Kind.TOOL, "LLM": Kind.MODEL, "AGENT": Kind.AGENT, "CHAIN": Kind.OTHER}
_CALL_IDS = ("tool_call.id", "tool.id", "tool.call_id")
_RESULTS: dict[str, Callable[[object], values.Outcome]] = {
    "langchain": values.tool_message,
    "llama_index": values.tool_output,
    "google_adk": values.agent_result,
    "": values.shaped_output,
}
_CALLS = frozenset(("smolagents", "llama_index", "dspy", ""))
_LANGCHAIN = ('"langgraph_', '"lc_agent_name"', '"ls_integration"')
"""Keys of LangChain's own in `metadata`."""
_STABLE_NODES = frozenset(("crewai", "openai_agents", "autogen_agentchat"))
_AGENT_ENDS = ("._execute_core", ".on_messages_stream", ".on_messages", ".execute", ".run")
_CREW_PROMPT = "\n\n\nYou ONLY have access to the following tools"
_MANAGED_TASK = re.compile(r"\n---\nTask:\n(.*?)\n---\n", re.DOTALL)
"""The task in the prompt by which smolagents hands one to a managed agent: the rest is the same for
all tasks."""
_PREFIXES = ("openinference.instrumentation.", "@arizeai/openinference-instrumentation-")
_CONTENT = "llm.output_messages.0.message.content"


class OpenInference:
    """Reads spans that have `openinference.span.kind`."""

    name = "openinference"
    marks = frozenset(("openinference.span.kind",))
    scopes = ("openinference.*", "@arizeai/openinference*")
    key_order = 0
    session_keys = ("session.id",)
    fallback_session_keys = ("crew_id",)
    agent_keys = ("agent.name", "tool.agent_role", "graph.node.name")
    key_prefixes = (
        "crew", "graph.node.", "input.", "llm.", "metadata", "openinference.", "output.",
        "session.", "smolagents.",
    )  # fmt: skip
    call_words: ClassVar = {
        "openinference.span.kind": frozenset(
            (
                "TOOL", "LLM", "RETRIEVER", "EMBEDDING", "RERANKER", "GUARDRAIL", "EVALUATOR",
                "PROMPT",
            )
        ),
    }  # fmt: skip

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a kind."""
        kind = span.attributes.get("openinference.span.kind")
        if not isinstance(kind, str):
            return None
        step = begin(span, _KINDS.get(kind, Kind.OTHER), span.name)
        framework = _framework(span)
        if step.kind is Kind.TOOL:
            _tool(step, span, framework)
        elif step.kind is Kind.MODEL:
            _model(step, span)
        elif step.kind is Kind.AGENT:
            _agent(step, span, framework)
        facts = parsed(span.attributes.get("metadata")) if framework == "langchain" else None
        if kind == "CHAIN" or (kind == "AGENT" and framework == "langchain"):
            _chain(step, span, framework, facts)
        if step.kind is Kind.AGENT and kind != "LLM":
            # CrewAI's input is a dump of its objects.
            step.args = None if framework == "crewai" else _task(captured(span, "input.value"))
            step.outcome = _answer(captured(span, "output.value"))
        # Session, agent and node that LangChain hands on as JSON in `metadata`; AutoGen's team.
        if framework == "langchain":
            step.node = entry(facts, "langgraph_node")
            step.agent = step.agent or entry(facts, "lc_agent_name")
            if "session.id" not in span.attributes:
                step.session = entry(facts, "session_id") or entry(facts, "thread_id")
        elif framework == "autogen_agentchat":
            step.session = identifier(span.attributes.get("team_id"))
        return step


def _framework(span: SpanView) -> str:
    """The framework that a span is of, by its scope; empty if neither that nor its shape tells."""
    if span.scope:
        return library(span.scope, *_PREFIXES)
    facts = span.attributes.get("metadata")
    of_langchain = isinstance(facts, str) and any(key in facts for key in _LANGCHAIN)
    return "langchain" if of_langchain else ""


def _tool(step: Step, span: SpanView, framework: str) -> None:
    attributes = span.attributes
    name = text(attributes.get("tool.name"))
    # In JavaScript handoffs have names of tools, too; no tool has a space in its own.
    if span.name.startswith("handoff" if name is None else "handoff to "):
        _handoff(step, span)
        return
    if name is None and framework == "openai_agents":
        step.kind = Kind.OTHER  # in JavaScript: it lists the tools of an MCP server before a turn
        return
    step.name = name or tool_in(span.name)
    for key in _CALL_IDS:
        step.call_id = step.call_id or identifier(attributes.get(key))
    args = captured(span, "input.value")
    if framework in _CALLS or (isinstance(args, str) and "sanitize_inputs_outputs" in args):
        args = values.call_inputs(args)
    step.args = args
    _result(step, captured(span, "output.value"), framework)
    failed(step, span)
    # The class of smolagents' final answer says whose it is, where the scope does not.
    if name == "final_answer" and (framework == "smolagents" or span.name == "FinalAnswerTool"):
        step.kind = Kind.OTHER


def _result(step: Step, value: object, framework: str) -> None:
    if value is None:
        return
    # In ReAct mode CrewAI hands every third result out with its whole prompt behind it.
    if framework in ("crewai", "") and isinstance(value, str):
        value = value.partition(_CREW_PROMPT)[0]
    unwrap = _RESULTS.get(framework)
    if unwrap is None:
        step.outcome = unquoted(value)
    else:
        set_outcome(step, unwrap(value))


def _handoff(step: Step, span: SpanView) -> None:
    step.kind = Kind.HANDOFF
    given, gave = captured(span, "input.value"), captured(span, "output.value")
    step.agent = identifier(within(given, "from_agent") or given)
    target = identifier(within(gave, "to_agent") or gave)
    step.name = target or text(span.name.partition("handoff to ")[2])
    failed(step, span)


def _model(step: Step, span: SpanView) -> None:
    """A model call. Without tokens and messages it is none (LlamaIndex `_prepare_chat_with_tools`).

    ADK's OpenInference writes the model's attributes on `invoke_agent` spans, the last call over
    those before: that is an agent, and its tokens are not counted.
    """
    attributes = span.attributes
    if span.name.startswith("invoke_agent "):
        _agent(step, span, "google_adk")
        return
    step.tokens_in = count(attributes.get("llm.token_count.prompt"))
    step.tokens_out = count(attributes.get("llm.token_count.completion"))
    answered = "llm.output_messages.0.message.role" in attributes
    step.model = text(attributes.get("llm.model_name"))
    step.text = _written(span, attributes, answered)
    known = answered or step.tokens is not None or "llm.token_count.total" in attributes
    failed(step, span)
    if span.name.endswith("._prepare_chat_with_tools") or not (
        known or step.error or span.end is None
    ):
        step.kind = Kind.OTHER
        step.tokens_in = step.tokens_out = step.text = None
    else:
        step.name = step.model or span.name


def _written(span: SpanView, attributes: Mapping[str, object], answered: bool) -> str | None:
    content = captured(span, _CONTENT)
    if content is None:
        content = captured(span, "llm.output_messages.0.message.contents.0.message_content.text")
    if content is None and hidden(attributes.get(_CONTENT)):
        return None
    if content is None and not answered:
        return assistant_text(captured(span, "output.value")) if span.end is not None else None
    return assistant_text(content) if content is not None else ""


def _agent(step: Step, span: SpanView, framework: str) -> None:
    attributes = span.attributes
    step.kind = Kind.AGENT
    name = text(attributes.get("agent.name")) or text(attributes.get("graph.node.name"))
    if name is None and framework in _STABLE_NODES:
        name = text(attributes.get("graph.node.id"))
    step.agent = name or text(attributes.get("gen_ai.agent.name"))
    end = next((end for end in _AGENT_ENDS if span.name.endswith(end)), None)
    plain = after(span.name, "invoke_agent ") if end is None else span.name.removesuffix(end)
    step.name = step.agent or plain or span.name
    failed(step, span)


def _task(value: object) -> object:
    """The request to an agent: a text, the newest message of a user, a task, or its arguments."""
    fields = mapping(parsed(value))
    if fields is None:
        return _text_of(value)
    if "messages" in fields:
        return user_text(fields["messages"])
    task = text(fields.get("task"))
    managed = None if task is None else _MANAGED_TASK.search(task)
    return managed[1] if managed else task or value


def _text_of(value: object) -> object:
    """A text; None of a state that was cut, or is too long to be parsed: each has other ids."""
    cut = isinstance(value, str) and value.startswith('{"messages"')
    return None if cut else unquoted(value)


def _answer(value: object) -> object:
    """The answer of an agent: a text, its last message, the text of CrewAI's or ADK's object."""
    fields = mapping(parsed(value))
    if fields is None:
        return _text_of(value)
    said = text(fields.get("raw"))
    if said is None and "messages" in fields:
        return last_answer(fields["messages"])
    return said or (assistant_text(value) if "content" in fields else value) or None


def _chain(step: Step, span: SpanView, framework: str, facts: object) -> None:
    node = entry(facts, "langgraph_node")
    if entry(facts, "lc_agent_name") == span.name:
        step.kind = Kind.AGENT  # also below a node, whose name its spans carry
    elif node is not None:
        # Other chains inside a node (`RunnableCallable`, `X.wrap_tool_call`) carry its name too.
        step.kind = Kind.NODE if span.name == node else Kind.OTHER
    elif framework == "langchain":
        if span.parent_id is None and step.kind is Kind.OTHER:
            step.kind = Kind.WORKFLOW
    elif span.name == "turn" or span.name.startswith(("Step ", "BaseWorkflowAgent.")):
        # Turns of openai-agents, steps of smolagents and of LlamaIndex's agent workflows.
        step.kind = Kind.NODE
        step.node = span.name
    elif span.parent_id is None or span.name.endswith(".kickoff"):
        step.kind = Kind.WORKFLOW
    if step.kind is Kind.NODE:
        step.args = captured(span, "input.value")
        step.outcome = captured(span, "output.value")
    failed(step, span)
