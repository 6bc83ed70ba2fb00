"""Cursor: its hooks for any tool, as `@cursor/sdk` 1.0.32 sends them and reads their answers.

An answer before a call that Cursor cannot use blocks the call. `ask` is taken and not heeded there,
and what follows a refusal is an event of a call that failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.hooks.agents.fields import (
    arguments,
    hint,
    identifier,
    listing,
    mapping,
    nanoseconds,
    parsed,
    reason,
    result,
    text,
)
from otel_loopguard.hooks.agents.nested import event_name
from otel_loopguard.hooks.events import EventKind, HookAnswer, HookEvent, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {
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
_HINTED: Final = frozenset(
    ("preToolUse", "postToolUse", "postToolUseFailure", "beforeSubmitPrompt", "sessionStart")
)
_NOT_SHOWN: Final = frozenset(
    ("success", "file_path", "content_length", "pattern", "url", "status_code", "deleted")
)
"""Fields of an answer that says only that there was one: reading, searching, writing."""


class Cursor:
    """Cursor."""

    name = "cursor"

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """The event of what stood on standard input; None for one that is not known."""
        fields = mapping(payload)
        name, session = event_name(fields), identifier(fields, "conversation_id")
        kind = _KINDS.get(name or "")
        if name is None or kind is None or session is None:
            return None
        if fields.get("failure_type") == "permission_denied":
            kind = EventKind.OTHER  # no call was made
        called = kind in (EventKind.CALL, EventKind.RESULT)
        outcome, error = _outcome(name, fields) if kind is EventKind.RESULT else (None, None)
        return HookEvent(
            self.name,
            name,
            kind,
            session,
            sub_agent=identifier(fields, "parent_tool_call_id"),
            turn=identifier(fields, "generation_id"),
            call_id=identifier(fields, "tool_use_id"),
            tool=identifier(fields, "tool_name"),
            args=arguments(fields.get("tool_input")) if called else None,
            outcome=outcome,
            error=error,
            duration_ns=nanoseconds(fields.get("duration")),
            text=text(fields.get("prompt")) or text(fields.get("text")),
            model=identifier(fields, "model"),
            cwd=text(fields.get("cwd")) or _root(fields),
            accepts_hint=name in _HINTED,
        )

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """What is written to standard output; `{}` where there is nothing to say."""
        fields = mapping(payload)
        name = event_name(fields) or ""
        kind, reply = _KINDS.get(name), answer.reply
        if reply is Reply.NOTHING:
            return {}
        why = reason(answer)
        if kind is EventKind.CALL and reply is not Reply.HINT:
            return {"permission": "deny", "user_message": why, "agent_message": why}
        if kind is EventKind.PROMPT and reply is Reply.STOP:
            return {"continue": False, "user_message": why}
        if kind is EventKind.STOP and reply is Reply.DENY and fields.get("loop_count") == 0:
            return {"followup_message": why}
        told = hint(answer)
        return {"additional_context": told} if told and name in _HINTED else {}


def _outcome(name: str, fields: Mapping[str, Any]) -> tuple[object, str | None]:
    if name == "postToolUseFailure":
        stopped = fields.get("is_interrupt") is True
        return None, None if stopped else text(fields.get("error_message")) or ""
    output = parsed(fields.get("tool_output"))
    answer = mapping(output)
    if answer and _NOT_SHOWN.issuperset(answer):
        return None, None
    written = answer.get("output", answer.get("stdout")) if "exitCode" in answer else result(output)
    failed = answer.get("isError") is True or answer.get("exitCode") not in (None, 0)
    return written, (text(written) or "") if failed else None


def _root(fields: Mapping[str, Any]) -> str | None:
    roots = listing(fields.get("workspace_roots"))
    return text(roots[0]) if roots else None
