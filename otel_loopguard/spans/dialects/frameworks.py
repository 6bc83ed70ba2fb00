"""Agent frameworks and protocols that write GenAI names, each with keys and habits of its own.

* Google ADK: results as `{"result": X}` or `{"error": X}`, also for a call that waits for a
  person. Arguments and results are off by default; the legacy schema has them in
  `gcp.vertex.agent.*`, and with content off (`ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=false`) `{}`
  for every call. A legacy `call_llm` span says again what the `generate_content` span below it
  says; those of ADK for TypeScript 2.0, which names the agent, and for Java 1.8, which names the
  operation and has tools inside, do not. ADK for Go puts a span of its own around calls that ran
  side by side (`tests/dialects/go_capture`).
* Anthropic's SDK, as of 2.14: content is opt-in (`ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE`,
  `content`), and results of its tool runner have a key of their own.
* AutoGen 0.7: neither arguments nor results. A run has dozens of traces, as each message that is
  published is a root. The uuid of the team ties them together: it is in the ids of agents
  (`looper_<uuid>/<uuid>`) and in the names of topics.
* Haystack 3, as `opentelemetry-haystack` writes it: spans have no attribute at their start. Content
  is opt-in (`HAYSTACK_CONTENT_TRACING_ENABLED`); without it, those of model calls have none at all.
  A tool that raises ends well, and its error repeats the arguments. The scope is the application's
  own.
* Model Context Protocol, as the Python SDK 2.x writes it: neither side has arguments or results,
  client spans of `tools/call` have no GenAI keys, and their status is OK for a result that is an
  error. https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/
* Microsoft Agent Framework: workflows and their executors; its agents write GenAI names alone.
* Spring AI 2.0.1, as Micrometer's bridge writes its observations (`tests/dialects/java_capture`).
  Arguments and results are opt-in (`spring.ai.tools.observations.include-content`). The scope is
  the application's own. A tool that throws ends well: its message is the result.
* Strands Agents: values in events; results are blocks (`[{"text": …}]`). A call that ended without
  status and result was interrupted, and is made when somebody has answered.
* Vercel AI SDK: `ai.operationId`, `ai.toolCall.*`, `ai.usage.*`
  (https://ai-sdk.dev/docs/ai-sdk-core/telemetry). Results are JSON text: a string has quotes.
  opencode writes it too; a command that fails ends well there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.coding_tools import opencode_output
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.messages import assistant_text, last_answer, user_text
from otel_loopguard.spans.steps import begin, captured, fail, failed, put_off
from otel_loopguard.spans.values import (
    agent_result,
    count,
    identifier,
    listing,
    parsed,
    text,
    texts,
    unquoted,
    within,
)

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_CONTENT_OFF: Final = "{}"
_MERGED: Final = "(merged tools)"
_NAMED: Final = ("gen_ai.agent.name", "gen_ai.operation.name")
"""Keys that a legacy `call_llm` span has not."""
_NOT_SPECIFIED: Final = "<not specified>"
_UNCONFIRMED: Final = "This tool call requires confirmation, please approve or reject."
_TEAM: Final = re.compile(r"_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=[/.]|$)")
_TEAM_KEYS: Final = (
    "gen_ai.agent.id", "recipient_agent_type", "sender_agent_type", "messaging.destination",
)  # fmt: skip
_CYCLE: Final = "execute_event_loop_cycle"
_ENDED: Final = "gen_ai.event.end_time"


class Adk:
    """Reads spans that have a `gcp.vertex.agent.*` key."""

    name = "adk"
    marks = frozenset(
        f"gcp.vertex.agent.{key}"
        for key in ("event_id", "invocation_id", "session_id", "tool_call_args")
    )
    builds_on = genai.NAME
    scopes = ("gcp.vertex.agent*", "google.adk*")
    session_keys = ("gcp.vertex.agent.session_id",)
    key_prefixes = ("gcp.vertex.agent.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without an operation."""
        if span.name == "call_llm":
            if not span.attributes.keys().isdisjoint(_NAMED):
                return genai.model(span)
            return failed(begin(span, Kind.OTHER, span.name), span)
        if span.name.startswith("invoke_agent "):
            # OpenInference overwrites the operation of the agent with that of its last model call.
            agent = text(span.attributes.get("gen_ai.agent.name"))
            step = begin(span, Kind.AGENT, agent or span.name.removeprefix("invoke_agent "))
            step.agent = agent
            return failed(step, span)
        step = genai.read(span)
        if step is not None and step.kind is Kind.TOOL:
            self._tool(step, span)
        return step

    def _tool(self, step: Step, span: SpanView) -> None:
        if step.name == _MERGED:
            step.kind, step.args, step.outcome = Kind.OTHER, None, None
            return
        if step.call_id == _NOT_SPECIFIED:
            step.call_id = None
        args = captured(span, "gcp.vertex.agent.tool_call_args")
        result = captured(span, "gcp.vertex.agent.tool_response")
        if args == result == _CONTENT_OFF:
            args = result = None
        if step.args is None:
            step.args = args
        if step.outcome is not None:
            result = step.outcome
        elif result is None or result == _NOT_SPECIFIED:
            result = captured(span, "output.value")
        if result is None:
            return
        outcome = agent_result(result)
        step.outcome = outcome.value
        if outcome.error == _UNCONFIRMED:
            put_off(step)
        elif outcome.failed:
            # Status and `error.type` say only TOOL_ERROR.
            step.error = True
            step.error_text = outcome.error or step.error_text


class AgentFramework:
    """Reads `workflow.run` and `executor.process` spans of the scope `agent_framework`."""

    name = "agent-framework"
    marks = frozenset(("executor.id", "workflow.id"))
    scopes = ("agent_framework*", "agent-framework*")
    fallback_session_keys = ("workflow.id",)
    key_prefixes = ()

    def read(self, span: SpanView) -> Step | None:
        """A graph node for an executor, a workflow for its run, else None."""
        if not span.scope.startswith("agent_framework"):
            return None
        executor = text(span.attributes.get("executor.id"))
        if executor is not None:
            step = begin(span, Kind.NODE, executor)
            step.node = executor
        else:
            kind = Kind.WORKFLOW if span.name.startswith("workflow.run") else Kind.OTHER
            step = begin(span, kind, text(span.attributes.get("workflow.name")) or span.name)
        return failed(step, span)


class AutoGen:
    """Reads spans of `autogen-core` and of AutoGen's runtimes."""

    name = "autogen"
    marks = frozenset(("gen_ai.system", *_TEAM_KEYS[1:]))
    builds_on = genai.NAME
    scopes = ("autogen*",)
    key_prefixes = ("recipient_agent", "sender_agent")

    def read(self, span: SpanView) -> Step | None:
        """Step of the span; a message of the runtime is of no interest but for its session."""
        if span.attributes.get("gen_ai.system") == "autogen":
            step = genai.read(span)
        elif span.scope.startswith("autogen "):
            step = failed(begin(span, Kind.OTHER, span.name), span)
        else:
            return None
        if step is not None:
            ids = (text(span.attributes.get(key)) for key in _TEAM_KEYS)
            # Names of topics and agents are short, and the pattern stays off what is not.
            teams = (_TEAM.search(each[:512]) for each in ids if each is not None)
            step.session = next((team[1] for team in teams if team), None)
        return step


class Anthropic:
    """Reads tool runs of Anthropic's SDK; its other spans are in the GenAI convention alone."""

    name = "anthropic"
    marks = frozenset(("anthropic.tool_result.content",))
    builds_on = genai.NAME
    scopes = ("com.anthropic.sdk*",)
    session_keys = ("anthropic.session.id",)
    key_prefixes = ("anthropic.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without an operation."""
        step = genai.read(span)
        if step is not None and step.kind is Kind.TOOL:
            step.outcome = texts(captured(span, "anthropic.tool_result.content"))
            if step.error:
                fail(step, step.outcome)
        return step


class Haystack:
    """Reads the spans of agents, `haystack.agent.run` and those below; none of pipelines."""

    name = "haystack"
    marks = frozenset(
        ("haystack.agent.max_steps", "haystack.agent.step.llm.output", "haystack.tool.name")
    )
    # Of the connector; of a tracer that the application makes, the scope is its own.
    scopes = ("haystack",)
    key_prefixes = ("haystack.",)

    def read(self, span: SpanView) -> Step | None:
        """A tool call, a model call or the run of an agent, else None."""
        attributes = span.attributes
        tool = text(attributes.get("haystack.tool.name"))
        if tool is not None:
            step = begin(span, Kind.TOOL, tool)
            step.args = captured(span, "haystack.agent.step.tool.input")
            step.outcome = captured(span, "haystack.agent.step.tool.output")
            if attributes.get("haystack.tool.error") is True:
                said = text(within(step.outcome, "error"))
                step.outcome = said and (said.partition(". Error: ")[2] or said)
                fail(step, step.outcome)
        elif "haystack.agent.step.llm.output" in attributes:
            replies = within(captured(span, "haystack.agent.step.llm.output"), "replies")
            meta = within((listing(replies) or (None,))[0], "meta")
            step = begin(span, Kind.MODEL, text(within(meta, "model")) or span.name)
            step.model = text(within(meta, "model"))
            usage = within(meta, "usage")
            # The second are those of OpenAI's Responses API.
            asked = within(usage, "prompt_tokens") or within(usage, "input_tokens")
            said = within(usage, "completion_tokens") or within(usage, "output_tokens")
            step.tokens_in, step.tokens_out = count(asked), count(said)
            step.text = assistant_text(replies)
        elif "haystack.agent.max_steps" in attributes:
            step = begin(span, Kind.AGENT, span.name)
            step.args = user_text(within(captured(span, "haystack.agent.input"), "messages"))
            step.outcome = last_answer(within(captured(span, "haystack.agent.output"), "messages"))
        else:
            return None
        return failed(step, span)


class Mcp:
    """Reads spans that have `mcp.method.name`."""

    name = "mcp"
    marks = frozenset(("mcp.method.name",))
    builds_on = genai.NAME
    scopes = ("mcp", "mcp-python-sdk*", "fastmcp*")
    key_prefixes = ("mcp.",)

    def read(self, span: SpanView) -> Step | None:
        """A tool call for `tools/call`, another exchange for other methods, else None."""
        method = span.attributes.get("mcp.method.name")
        if not isinstance(method, str):
            return None
        serving = span.kind == "SERVER"
        if method == "tools/call":
            step = genai.tool(span)
        else:
            kind = Kind.MCP_SERVER if serving else Kind.MCP_CLIENT
            step = failed(begin(span, kind, method), span)
        step.server = serving
        return step


class SpringAI:
    """Reads tool calls and clients; its model calls are in the GenAI convention."""

    name = "spring_ai"
    marks = frozenset(("spring.ai.kind", "spring.ai.tool.definition.name"))
    scopes = ("org.springframework.ai*",)
    session_keys = ("spring.ai.chat.client.conversation.id",)
    key_prefixes = ("spring.ai.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None for other observations."""
        attributes = span.attributes
        tool = text(attributes.get("spring.ai.tool.definition.name"))
        if tool is not None:
            step = begin(span, Kind.TOOL, tool)
            step.call_id = identifier(attributes.get("spring.ai.tool.call.id"))
            step.args = parsed(captured(span, "spring.ai.tool.call.arguments"))
            step.outcome = unquoted(captured(span, "spring.ai.tool.call.result"))
            return failed(step, span)
        if attributes.get("spring.ai.kind") == "chat_client":
            return failed(begin(span, Kind.AGENT, "chat_client"), span)
        return None


class Strands:
    """Reads spans that have `gen_ai.event.start_time`."""

    name = "strands"
    marks = frozenset(("gen_ai.event.start_time",))
    builds_on = genai.NAME
    scopes = ("strands.*",)
    key_prefixes = ()

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without an operation."""
        step = genai.read(span)
        if step is None:
            return None
        if step.kind is Kind.TOOL:
            step.outcome = texts(step.outcome)
            status = span.attributes.get("gen_ai.tool.status")
            if status == "error":
                fail(step, step.outcome)
            elif _ENDED in span.attributes and status is step.outcome is None and not step.error:
                put_off(step)
        elif span.attributes.get("gen_ai.operation.name") == _CYCLE:
            step.kind, step.name, step.node = Kind.NODE, _CYCLE, _CYCLE
        return step


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
            step.outcome = assistant_text(captured(span, "ai.response.text")) or None
        return failed(step, span)


def _instruction(span: SpanView) -> str | None:
    """The prompt of a run, or the newest message of the user in it."""
    given = parsed(captured(span, "ai.prompt"))
    prompt = within(given, "prompt")
    if isinstance(prompt, str):
        return prompt
    return user_text(prompt or within(given, "messages"))


def _tool(span: SpanView) -> Step:
    attributes = span.attributes
    # Traceloop's exporter gives some of the attributes GenAI names.
    name = text(attributes.get("ai.toolCall.name")) or text(attributes.get("gen_ai.tool.name"))
    step = begin(span, Kind.TOOL, name)
    step.call_id = identifier(attributes.get("ai.toolCall.id"))
    step.args = captured(span, "ai.toolCall.args", "ai.toolCall.input")
    step.outcome = unquoted(captured(span, "ai.toolCall.result", "ai.toolCall.output"))
    step.outcome, code = opencode_output(step.outcome)
    if code:
        fail(step, step.outcome)
    return step


def _model(span: SpanView) -> Step:
    models = ("ai.response.model", "ai.model.id")
    step = genai.model_step(span, models, _IN, _OUT, "ai.response.text")
    if step.text is None and "ai.response.toolCalls" in span.attributes:
        step.text = ""
    return step
