"""Codex: hooks as in the schemas of openai/codex `codex-rs/hooks` and in developers.openai.com.

An answer with a field that Codex does not know, or that it knows and does not support, is thrown
away whole, and the call is made. `continue: false` after a call does not end the turn, as its
documentation has it: the model is told the reason in place of the result (seen in 0.169.0).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.hooks.agents.base import BaseAgent, specific
from otel_loopguard.hooks.agents.fields import mapping, reason, result, text
from otel_loopguard.spans.coding_tools import codex_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.hooks.events import HookAnswer

_COMPLAINT: Final = re.compile(
    r"(?:/\S{1,60}/)?([\w.+-]{1,40}): (?!warning)(?=.{0,300}"
    r"(?:no such|not found|not a |is a dir|permission|denied|cannot|can't|unable|fail|error|invalid"
    r"|illegal|unknown|unrecogni|missing|refused|timed out|\*\*\*))",
    re.IGNORECASE,
)
_PROGRAM: Final = re.compile(r"(?:^|[|&;(\n])\s{0,20}(?:\S{1,100}/)?([\w.+-]{1,40})")
_SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
_LINES: Final = 5
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_LONGEST: Final = 8_000


class Codex(BaseAgent):
    """Codex."""

    name = "codex"
    hinted = frozenset(("PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart"))
    held = frozenset(("Stop", "SubagentStop"))

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """The answer of a tool, and its error, which only the text shows."""
        written, code = codex_output(fields.get("tool_response"))
        failed = code != 0 or mapping(written).get("isError") is True
        written = result(written)
        if isinstance(written, str) and not failed:
            line = text(mapping(fields.get("tool_input")).get("command")) or ""
            failed = _is_complaint(written, line)
        return written, (text(written) or "") if failed else None

    def refuse(self, name: str, answer: HookAnswer) -> dict[str, Any]:
        """The answer that keeps a call from being made: Codex cannot ask, nor end a turn here."""
        return specific(name, permissionDecision="deny", permissionDecisionReason=reason(answer))


def _is_complaint(written: str, line: str) -> bool:
    """Whether all of it is complaints of the shell or of the called program, or a traceback.

    A text that only names an error may be the healthy answer of a search.
    """
    if written.startswith(_TRACEBACK):
        return not written.rstrip().rpartition("\n")[2].startswith(" ")
    lines = written[:_LONGEST].rstrip().split("\n")
    programs = _SHELLS.union(_PROGRAM.findall(line[:_LONGEST]))
    named = [_COMPLAINT.match(each) for each in lines]
    return len(lines) <= _LINES and all(each and each[1] in programs for each in named)
