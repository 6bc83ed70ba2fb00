"""The base of most coding agents: events in `hook_event_name`, answers as Claude Code's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_loopguard.hooks.agents.fields import (
    arguments,
    hint,
    identifier,
    listing,
    mapping,
    nanoseconds,
    reason,
    result,
    text,
)
from otel_loopguard.hooks.events import EventKind, HookAnswer, HookEvent, Reply

KINDS: Final[Mapping[str, EventKind]] = {
    "PreToolUse": EventKind.CALL,
    "PostToolUse": EventKind.RESULT,
    "UserPromptSubmit": EventKind.PROMPT,
    "Stop": EventKind.STOP,
    "StopFailure": EventKind.STOP,
    "SubagentStop": EventKind.STOP,
    "Interrupt": EventKind.STOP,
    "SessionStart": EventKind.SESSION_START,
    "SessionEnd": EventKind.SESSION_END,
    "PreCompact": EventKind.COMPACTION,
    "PostCompact": EventKind.COMPACTION,
    "PermissionRequest": EventKind.OTHER,
    "Notification": EventKind.OTHER,
    "SubagentStart": EventKind.OTHER,
}
"""What the events tell that Claude Code named, and others took over."""
_ENDED: Final = (EventKind.CALL, EventKind.RESULT, EventKind.PROMPT)
"""Kinds at which a turn runs that can be ended."""


class BaseAgent:
    """An agent whose answers are nested in `hookSpecificOutput` by default."""

    name: str
    kinds: Mapping[str, EventKind] = KINDS
    """Kinds of events by name."""
    hinted: frozenset[str]
    """Events whose answer can carry a message to the model."""
    held: frozenset[str] = frozenset()
    """Events whose answer can keep the agent from ending its turn."""

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """The event of what stood on standard input; None for one that is not known."""
        fields = mapping(payload)
        name = event_name(fields)
        session = identifier(fields, "session_id", "sessionId", "conversation_id")
        kind = self.kind(name, fields)
        if name is None or kind is None or session is None:
            return None
        called = kind in (EventKind.CALL, EventKind.RESULT)
        outcome, error = self.outcome(fields) if kind is EventKind.RESULT else (None, None)
        texts = map(text, map(fields.get, ("last_assistant_message", "prompt_response", "prompt")))
        roots = listing(fields.get("workspace_roots")) or (None,)
        return HookEvent(
            self.name,
            name,
            kind,
            session,
            sub_agent=identifier(fields, "agent_id", "parent_tool_call_id"),
            turn=identifier(fields, "prompt_id", "turn_id", "generation_id"),
            call_id=identifier(fields, "tool_use_id"),
            tool=identifier(fields, "tool_name"),
            args=arguments(fields.get("tool_input")) if called else None,
            outcome=outcome,
            error=error,
            duration_ns=nanoseconds(fields.get("duration_ms", fields.get("duration"))),
            text=next(filter(None, texts), None) or text(fields.get("text")),
            model=identifier(fields, "model"),
            cwd=text(fields.get("cwd")) or text(roots[0]),
            accepts_hint=name in self.hinted,
        )

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:  # noqa: ARG002
        """Reads an event; returns None for an unknown one."""
        return self.kinds.get(name) if name else None

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """Returns the result of a tool, and its error."""
        return result(fields.get("tool_response")), None

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """Returns the answer for standard output; `{}` for none."""
        fields = mapping(payload)
        name = event_name(fields)
        kind = self.kind(name, fields)
        if name is None or kind is None or answer.reply is Reply.NOTHING:
            return {}
        if kind is EventKind.CALL and answer.reply is not Reply.HINT:
            return self.refuse(name, answer)
        if answer.reply is Reply.STOP:
            return self.end(reason(answer)) if kind in _ENDED else {}
        if name in self.held and answer.reply is Reply.DENY:
            # Blocked again and again the agent would never end.
            again = fields.get("stop_hook_active") is not False
            return {} if again else self.hold(reason(answer))
        message = hint(answer)
        return self.tell(name, message) if message and name in self.hinted else {}

    def refuse(self, name: str, answer: HookAnswer) -> dict[str, Any]:
        """Returns the answer that refuses a call, or asks the user about it."""
        decision = "ask" if answer.reply is Reply.ASK else "deny"
        output = specific(
            name, permissionDecision=decision, permissionDecisionReason=reason(answer)
        )
        return output | self.end(reason(answer)) if answer.reply is Reply.STOP else output

    def end(self, why: str) -> dict[str, Any]:
        """Returns the answer that ends a turn after a call, or before it begins."""
        return {"continue": False, "stopReason": why}

    def hold(self, why: str) -> dict[str, Any]:
        """Returns the answer that keeps a turn from ending."""
        return {"decision": "block", "reason": why}

    def tell(self, name: str, message: str) -> dict[str, Any]:
        """Returns the answer with a message to the model."""
        return specific(name, additionalContext=message)


def event_name(fields: Mapping[str, Any]) -> str | None:
    """The agent's own name for the event."""
    return identifier(fields, "hook_event_name", "hookEventName")


def specific(name: str, **fields: str) -> dict[str, Any]:
    """The part of an answer that belongs to one event."""
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}
