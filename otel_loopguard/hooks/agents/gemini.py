"""gemini-cli: hooks as in its docs/hooks/reference.md (0.61.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_loopguard.hooks.agents.base import BaseAgent
from otel_loopguard.hooks.agents.fields import mapping, reason, result, text
from otel_loopguard.hooks.events import EventKind, HookAnswer, Reply
from otel_loopguard.spans.coding_tools import gemini_output

if TYPE_CHECKING:
    from collections.abc import Mapping


class Gemini(BaseAgent):
    """gemini-cli; it reports neither ids of calls nor compactions of the context."""

    name = "gemini"
    kinds: Mapping[str, EventKind] = {
        "BeforeTool": EventKind.CALL,
        "AfterTool": EventKind.RESULT,
        "BeforeAgent": EventKind.PROMPT,
        "AfterAgent": EventKind.STOP,
        "SessionStart": EventKind.SESSION_START,
        "SessionEnd": EventKind.SESSION_END,
        "PreCompress": EventKind.OTHER,  # comes before each request, whether or not it is needed
        "Notification": EventKind.OTHER,
    }
    hinted = frozenset(("AfterTool", "BeforeAgent", "SessionStart"))
    held = frozenset(("AfterAgent",))

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """What a tool answered, and its error."""
        response = fields.get("tool_response")
        written = result(response)
        error = mapping(response).get("error")
        if not error:
            return gemini_output(written) if isinstance(written, str) else (written, None)
        message = text(mapping(error).get("message")) or text(error)
        return written, message or text(written) or ""

    def refuse(self, name: str, answer: HookAnswer) -> dict[str, Any]:  # noqa: ARG002
        """The answer that keeps a call from being made: gemini-cli cannot ask."""
        why = reason(answer)
        ended = self.end(why) if answer.reply is Reply.STOP else {}
        return {**ended, "decision": "deny", "reason": why}

    def end(self, why: str) -> dict[str, Any]:
        """Without `deny`, which would throw away a prompt or the answer of a tool."""
        return {"continue": False, "stopReason": why, "reason": why}

    def hold(self, why: str) -> dict[str, Any]:
        """The answer that keeps a turn from ending."""
        return {"decision": "deny", "reason": why}
