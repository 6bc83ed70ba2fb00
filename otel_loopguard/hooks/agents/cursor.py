"""Cursor: its hooks for any tool, as `@cursor/sdk` 1.0.32 sends them and reads their answers.

An answer before a call that Cursor cannot use blocks the call. `ask` is taken and not heeded there,
and what follows a refusal is an event of a call that failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.hooks.agents.base import BaseAgent, event_name
from otel_loopguard.hooks.agents.fields import mapping, parsed, reason, result, text
from otel_loopguard.hooks.events import EventKind, HookAnswer, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_SHOWN: Final = frozenset(
    ("success", "file_path", "content_length", "pattern", "url", "status_code", "deleted")
)
"""Fields of an answer that says only that there was one: reading, searching, writing."""


class Cursor(BaseAgent):
    """Cursor."""

    name = "cursor"
    kinds: Mapping[str, EventKind] = {
        "preToolUse": EventKind.CALL,
        "postToolUse": EventKind.RESULT,
        "postToolUseFailure": EventKind.RESULT,
        "beforeSubmitPrompt": EventKind.PROMPT,
        "afterAgentResponse": EventKind.RESPONSE,
        "stop": EventKind.STOP,
        "sessionStart": EventKind.SESSION_START,
        "sessionEnd": EventKind.SESSION_END,
        "preCompact": EventKind.COMPACTION,
        "afterAgentThought": EventKind.OTHER,
    }
    hinted = frozenset(
        ("preToolUse", "postToolUse", "postToolUseFailure", "beforeSubmitPrompt", "sessionStart")
    )

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:
        """Reads an event; a call that was refused was not made."""
        denied = fields.get("failure_type") == "permission_denied"
        return EventKind.OTHER if denied else super().kind(name, fields)

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """What a tool answered, and its error; neither where the user interrupted it."""
        if event_name(fields) == "postToolUseFailure":
            stopped = fields.get("is_interrupt") is True
            return None, None if stopped else text(fields.get("error_message")) or ""
        output = parsed(fields.get("tool_output"))
        answer = mapping(output)
        if answer and _NOT_SHOWN.issuperset(answer):
            return None, None
        command = "exitCode" in answer
        written = answer.get("output", answer.get("stdout")) if command else result(output)
        failed = answer.get("isError") is True or answer.get("exitCode") not in (None, 0)
        return written, (text(written) or "") if failed else None

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """What is written to standard output; `{}` where there is nothing to say."""
        fields = mapping(payload)
        kind, why = self.kind(event_name(fields), fields), reason(answer)
        if kind is EventKind.STOP and answer.reply is Reply.DENY and fields.get("loop_count") == 0:
            return {"followup_message": why}
        if kind is EventKind.PROMPT and answer.reply is Reply.STOP:
            return {"continue": False, "user_message": why}
        return super().answer(payload, answer)

    def refuse(self, name: str, answer: HookAnswer) -> dict[str, Any]:  # noqa: ARG002
        """The answer that keeps a call from being made: Cursor cannot ask, nor end a turn here."""
        why = reason(answer)
        return {"permission": "deny", "user_message": why, "agent_message": why}

    def end(self, why: str) -> dict[str, Any]:
        """A turn cannot be ended: the model learns why each call will be refused."""
        return {"additional_context": why}

    def tell(self, name: str, message: str) -> dict[str, Any]:  # noqa: ARG002
        """The answer with a message to the model."""
        return {"additional_context": message}
