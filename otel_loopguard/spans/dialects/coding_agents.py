"""Claude Code, Codex, gemini-cli and Copilot: their spans, and log records as a server shows them.

A log record that tells of a call is read as a span that ends with it and is named after the event
(`otel_loopguard.replay.log_records`). From captures of Claude Code 2.1.330, Codex 0.169.0,
gemini-cli 0.61.0 and Copilot CLI 1.0.102 (`tests/dialects/node_captures`); what is not in them from
code.claude.com/docs/en/monitoring-usage (2026-08-10), openai/codex codex-rs/otel (0136a73) and
google-gemini/gemini-cli packages/core/src/telemetry (0.61.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.coding_tools import codex_output, copilot_output, gemini_result
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.steps import begin, captured, fail, failed
from otel_loopguard.spans.values import first_count, identifier, mapping, parsed, text, within

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_IN: Final = ("input_tokens", "gen_ai.usage.input_tokens", "input_token_count")
_OUT: Final = ("output_tokens", "gen_ai.usage.output_tokens", "output_token_count")
_REQUESTS: Final = frozenset(
    ("claude_code.llm_request", "claude_code.api_request", "claude_code.assistant_response")
)
_CODEX_MAIN: Final = "/root"
_VAGUE: Final = "Shell command failed"
"""The error of each command that fails in Claude Code."""


class ClaudeCode:
    """Claude Code: spans `claude_code.*` and log records of the same names."""

    name = "claude_code"
    marks = frozenset(("event.name", "tool_use_id", "span.type"))
    scopes = ("com.anthropic.claude_code*",)
    fallback_agent_keys = ("agent_id",)
    key_prefixes = ("tool_use_id", "span.type")

    def read(self, span: SpanView) -> Step | None:
        """Step of a span or record; None for what is none, as a call that waits for its user."""
        step = self._read(span)
        if step is not None:
            # A sub-agent's id is the conversation of its spans; its records name its type too.
            step.agent = identifier(span.attributes.get("agent_id"))
            step.session = identifier(span.attributes.get("session.id"))
        return step

    def _read(self, span: SpanView) -> Step | None:
        name = span.name
        if name in ("claude_code.tool", "claude_code.tool_result"):
            return self._tool(span)
        if name in _REQUESTS:
            step = _model(span)
            cost = span.attributes.get("cost_usd")
            step.cost = float(cost) if isinstance(cost, (int, float)) else None
            return step
        if name == "claude_code.interaction":
            step = begin(span, Kind.AGENT, "claude-code")
            step.args = text(captured(span, "user_prompt"))
            return failed(step, span)
        if name == "claude_code.user_prompt":
            return begin(span, Kind.OTHER, "user")
        return None

    def _tool(self, span: SpanView) -> Step:
        step = begin(span, Kind.TOOL, text(span.attributes.get("tool_name")))
        if step.name == "mcp_tool":
            # Records name the server and its tool apart, spans together.
            parts = parsed(captured(span, "tool_parameters"))
            server, tool = text(within(parts, "mcp_server_name")), within(parts, "mcp_tool_name")
            step.name = f"mcp__{server}__{tool}" if server and text(tool) else step.name
        step.call_id = identifier(span.attributes.get("tool_use_id"))
        step.args = parsed(captured(span, "tool_input", "tool_parameters"))
        command = text(span.attributes.get("full_command"))
        if step.args is None and command is not None:
            step.args = {"command": command}
        for name, attributes in span.events:
            if name == "tool.output":
                step.outcome = attributes.get("output", attributes.get("content"))
        return _ended(step, span)


class Codex:
    """Codex: log records `codex.*`; its spans have sizes only."""

    name = "codex"
    marks = frozenset(("event.name",))
    scopes = ("codex_otel*", "codex_exec*", "codex_cli*")
    fallback_session_keys = ("conversation.id",)

    def read(self, span: SpanView) -> Step | None:
        """Step of a record."""
        if span.name == "codex.tool_result":
            step = begin(span, Kind.TOOL, text(span.attributes.get("tool_name")))
            step.call_id = identifier(span.attributes.get("call_id"))
            step.args = parsed(captured(span, "arguments"))
            agent = identifier(span.attributes.get("agent_name"))
            step.agent = None if agent == _CODEX_MAIN else agent
            step.outcome, code = codex_output(captured(span, "output"))
            return fail(step, step.outcome) if code else _ended(step, span, step.outcome)
        if span.name == "codex.sse_event" and first_count(span.attributes, _IN) is not None:
            return _model(span)
        if span.name == "codex.user_prompt":
            return begin(span, Kind.OTHER, "user")
        return None


class GeminiCli:
    """gemini-cli: spans of the scope `gemini-cli`, and log records `gemini_cli.*`."""

    name = "gemini_cli"
    marks = frozenset(("event.name", "gen_ai.tool.call_id", "gen_ai.prompt.name"))
    scopes = ("gemini-cli*",)
    key_prefixes = ("gen_ai.tool.call_id", "gen_ai.prompt.name")

    def read(self, span: SpanView) -> Step | None:
        """Step of a span or record."""
        attributes = span.attributes
        operation = attributes.get("gen_ai.operation.name") or span.name
        if operation == "tool_call":
            step = begin(span, Kind.TOOL, text(attributes.get("gen_ai.tool.name")))
            step.call_id = identifier(attributes.get("gen_ai.tool.call_id"))
            # The request has an id and the result has times: with them no two calls are equal.
            step.args = within(parsed(captured(span, "gen_ai.input.messages")), "args")
            _gemini_result(step, parsed(captured(span, "gen_ai.output.messages")))
            return failed(step, span)
        if operation == "gemini_cli.tool_call":
            step = begin(span, Kind.TOOL, text(attributes.get("function_name")))
            step.args = parsed(captured(span, "function_args"))
            if within(parsed(captured(span, "metadata")), "isError") is True:
                fail(step, None)
            return _ended(step, span)
        if operation in ("llm_call", "gemini_cli.api_response"):
            return failed(_model(span), span)
        if operation == "agent_call":
            name = text(attributes.get("gen_ai.agent.name")) or "gemini-cli"
            return failed(begin(span, Kind.AGENT, name), span)
        if operation == "gemini_cli.user_prompt":
            return begin(span, Kind.OTHER, "user")
        return None


class Copilot:
    """Copilot's command line: the GenAI convention, with the number of a shell in its results."""

    name = "copilot"
    marks = frozenset(("github.copilot.tool.parameters.command",))
    builds_on = genai.NAME
    scopes = ("github.copilot*",)
    key_prefixes = ("github.copilot.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of the span."""
        step = genai.read(span)
        if step is None or step.kind is not Kind.TOOL:
            return step
        step.outcome, code = copilot_output(step.outcome)
        return fail(step, step.outcome) if code else step


def _model(span: SpanView) -> Step:
    models = ("model", "gen_ai.request.model")
    step = genai.model_step(span, models, _IN, _OUT, "gen_ai.output.messages")
    if step.text is None:
        step.text = text(captured(span, "response"))
    return step


def _ended(step: Step, span: SpanView, output: object = None) -> Step:
    """Reads how a call ended: `success` is a boolean, or text."""
    if span.attributes.get("success") in (False, "false", "False"):
        said = text(captured(span, "error", "error_message")) or text(output)
        kind = text(span.attributes.get("error_type"))
        return fail(step, None if said == _VAGUE else said, kind)
    return failed(step, span)


def _gemini_result(step: Step, call: object) -> None:
    """Puts on a step what gemini-cli keeps of a call; what was cut at its limit is not known."""
    response = mapping(within(call, "response"))
    if response is None:
        return
    step.outcome, broken = gemini_result(response.get("responseParts"))
    told = within(call, "status") == "error" or within(response.get("data"), "isError") is True
    if told or broken is not None:
        fail(step, broken or step.outcome, text(response.get("errorType")))
