"""opencode: what `hooks/data/opencode.js`, our plugin in it, sends and understands.

The plugin's events are named after the hooks of `@opencode-ai/plugin` 1.18.33 that it is called by.
"""

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
from otel_loopguard.hooks.events import EventKind, HookAnswer, HookEvent, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {
    "tool.execute.before": EventKind.CALL,
    "tool.execute.after": EventKind.RESULT,
    "tool.error": EventKind.RESULT,
    "chat.message": EventKind.PROMPT,
    "session.idle": EventKind.STOP,
    "session.created": EventKind.SESSION_START,
    "session.deleted": EventKind.SESSION_END,
    "session.compacted": EventKind.COMPACTION,
}
_TOLD: Final = frozenset((EventKind.CALL, EventKind.RESULT))


class OpenCode:
    """opencode; its plugin refuses a call by `deny`, shows a `hint` and ends a turn by `stop`."""

    name = "opencode"

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """The event of what stood on standard input; None for one that is not known."""
        fields = mapping(payload)
        name, session = identifier(fields, "event"), identifier(fields, "sessionID")
        kind = _KINDS.get(name or "")
        if name is None or kind is None or session is None:
            return None
        called = kind in _TOLD
        outcome, error = _outcome(name, fields) if kind is EventKind.RESULT else (None, None)
        return HookEvent(
            self.name,
            name,
            kind,
            session,
            call_id=identifier(fields, "callID"),
            tool=identifier(fields, "tool"),
            args=arguments(fields.get("args")) if called else None,
            outcome=outcome,
            error=error,
            text=text(fields.get("text")),
            model=identifier(fields, "model"),
            cwd=text(fields.get("directory")),
            accepts_hint=called,
        )

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """What is written to standard output; `{}` where there is nothing to say."""
        kind = _KINDS.get(identifier(mapping(payload), "event") or "")
        if kind not in _TOLD or answer.reply is Reply.NOTHING:
            return {}
        why = reason(answer)
        ended = {"stop": why} if answer.reply is Reply.STOP else {}
        if kind is EventKind.CALL and answer.reply is not Reply.HINT:
            return {"deny": why, **ended}
        hint_text = hint(answer)
        return ended or ({"hint": hint_text} if hint_text else {})


def _outcome(name: str, fields: Mapping[str, Any]) -> tuple[object, str | None]:
    if name == "tool.error":
        return None, text(fields.get("error")) or ""
    written = result(fields.get("output"))
    code = mapping(fields.get("metadata")).get("exit")
    failed = isinstance(code, int) and code != 0
    return written, (text(written) or "") if failed else None
