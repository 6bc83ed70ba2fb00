"""Claude Code: hooks as in the types of `@anthropic-ai/claude-agent-sdk` 0.3.330."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.hooks.agents.base import KINDS, BaseAgent
from otel_loopguard.hooks.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_PEOPLE: Final = (None, "user", "sdk")
"""Who can have written a prompt that begins a turn; the others come from timers and programs."""


class ClaudeCode(BaseAgent):
    """Claude Code."""

    name = "claude-code"
    kinds: Mapping[str, EventKind] = {**KINDS, "PostToolUseFailure": EventKind.RESULT}
    hinted = frozenset(
        ("PreToolUse", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart")
    )
    held = frozenset(("Stop", "SubagentStop"))

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:
        """Reads an event; returns None for an unknown one."""
        kind = super().kind(name, fields)
        if kind is EventKind.PROMPT and fields.get("source") not in _BY_PEOPLE:
            return EventKind.OTHER
        return kind

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """What a tool answered, and its error; neither where the user interrupted it."""
        if fields.get("hook_event_name") != "PostToolUseFailure":
            return super().outcome(fields)
        error = fields.get("error")
        if fields.get("is_interrupt") is True:
            return None, None
        return None, error if isinstance(error, str) else ""
