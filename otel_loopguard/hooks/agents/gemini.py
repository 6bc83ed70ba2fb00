"""gemini-cli: hooks as in its docs/hooks/reference.md (0.61.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.hooks.agents.fields import (
    arguments,
    hint,
    identifier,
    mapping,
    reason,
    result,
    text,
)
from otel_loopguard.hooks.agents.nested import event_name, specific
from otel_loopguard.hooks.events import EventKind, HookAnswer, HookEvent, Reply
from otel_loopguard.spans.coding_tools import gemini_output

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {
    "BeforeTool": EventKind.CALL,
    "AfterTool": EventKind.RESULT,
    "BeforeAgent": EventKind.PROMPT,
    "AfterAgent": EventKind.STOP,
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
    "PreCompress": EventKind.OTHER,  # comes before each request, whether or not it is needed
    "Notification": EventKind.OTHER,
}
_HINTED: Final = frozenset(("AfterTool", "BeforeAgent", "SessionStart"))


class Gemini:
    """gemini-cli; it gives no ids of calls, and does not tell when it makes the context smaller."""

    name = "gemini"

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """The event of what stood on standard input; None for one that is not known."""
        fields = mapping(payload)
        name, session = event_name(fields), identifier(fields, "session_id")
        kind = _KINDS.get(name or "")
        if name is None or kind is None or session is None:
            return None
        called = kind in (EventKind.CALL, EventKind.RESULT)
        outcome, error = _outcome(fields) if kind is EventKind.RESULT else (None, None)
        said = fields.get("prompt_response" if kind is EventKind.STOP else "prompt")
        return HookEvent(
            self.name,
            name,
            kind,
            session,
            tool=identifier(fields, "tool_name"),
            args=arguments(fields.get("tool_input")) if called else None,
            outcome=outcome,
            error=error,
            text=text(said),
            cwd=text(fields.get("cwd")),
            accepts_hint=name in _HINTED,
        )

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """What is written to standard output; `{}` where there is nothing to say."""
        fields = mapping(payload)
        name = event_name(fields) or ""
        kind, reply = _KINDS.get(name), answer.reply
        if kind is None or reply is Reply.NOTHING:
            return {}
        why = reason(answer)
        denied = {"decision": "deny", "reason": why}
        if reply is Reply.STOP:
            return _ended(kind, why)
        if kind is EventKind.CALL:
            # Before a call nothing can be told but why it is refused.
            return {} if reply is Reply.HINT else denied
        if kind is EventKind.STOP:
            again = fields.get("stop_hook_active") is not False
            return {} if again or reply is not Reply.DENY else denied
        told = hint(answer)
        return specific(name, additionalContext=told) if told and name in _HINTED else {}


def _ended(kind: EventKind, why: str) -> dict[str, Any]:
    """The answer that ends a turn; `deny` would throw away a prompt or the answer of a tool."""
    if kind not in (EventKind.CALL, EventKind.RESULT, EventKind.PROMPT):
        return {}
    denied = {"decision": "deny"} if kind is EventKind.CALL else {}
    return {"continue": False, "stopReason": why, "reason": why, **denied}


def _outcome(fields: Mapping[str, Any]) -> tuple[object, str | None]:
    response = fields.get("tool_response")
    told = mapping(response)
    written = result(response)
    error = told.get("error")
    if not error:
        return gemini_output(written) if isinstance(written, str) else (written, None)
    said = text(mapping(error).get("message")) or text(error)
    return written, said or text(written) or ""
