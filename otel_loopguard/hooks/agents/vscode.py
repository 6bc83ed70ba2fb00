"""Copilot in VS Code, and Copilot CLI, which reads the same files.

Hooks as in code.visualstudio.com/docs/agents/reference/hooks-reference; what Copilot CLI does
otherwise was seen in 1.0.102.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_loopguard.hooks.agents.base import BaseAgent, event_name
from otel_loopguard.hooks.agents.fields import mapping, result, text
from otel_loopguard.spans.coding_tools import copilot_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.hooks.events import HookAnswer


class VSCode(BaseAgent):
    """Copilot; VS Code reports no failed calls, Copilot CLI no ids of calls."""

    name = "vscode"
    hinted = frozenset(("PreToolUse", "PostToolUse", "SessionStart"))

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """The answer of a tool, and its error, which only the end of a command's text shows."""
        tool_result = mapping(fields.get("tool_result"))
        if not tool_result:
            return super().outcome(fields)
        written, code = copilot_output(result(tool_result.get("text_result_for_llm")))
        failed = code != 0 or tool_result.get("result_type") == "failure"
        return written, (text(written) or "") if failed else None

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """What is written to standard output; `{}` where there is nothing to say."""
        output = super().answer(payload, answer)
        hint = mapping(output.get("hookSpecificOutput")).get("additionalContext")
        if hint and event_name(mapping(payload)) == "PostToolUse":
            output["additionalContext"] = hint  # where Copilot CLI reads it
        return output
