"""Where each coding agent looks for hooks, and how it writes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_loopguard._util.values import dataclass

# Agents give up a hook then; ours answers within a second, or two where it judges by itself.
_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Command:
    """The command of a hook; it exits with 0 and prints `{}` even if the program is gone.

    Attributes:
        shell: For any POSIX shell.
        windows: For `cmd` and PowerShell.
    """

    shell: str
    windows: str

    @classmethod
    def of(cls, program: str, agent: str, mode: str) -> Command:
        """The command that runs the hook of an agent."""
        words = f"hook run {agent} --mode {mode}"
        inner = f"{shlex.quote(program)} {words} || echo {{}}"
        windows = program if os.name == "nt" else "otel-loopguard"
        quoted = f'"{windows}"' if " " in windows else windows
        return cls(f"sh -c {shlex.quote(inner)}", f"{quoted} {words}")

    @property
    def here(self) -> str:
        """For an agent that has one command for all systems."""
        return self.windows if os.name == "nt" else self.shell


@dataclass(frozen=True, slots=True)
class HookFile:
    """Where one agent looks for hooks.

    Attributes:
        user: File of the user's own hooks.
        project: The same of a project, below its folder.
        handler: The entry that calls the command, in the agent's own form.
        grouped: True if handlers stand in groups, as Claude Code has them.
        todo: What the user still has to do.
        start: What a new file begins as.
    """

    user: Callable[[], Path]
    project: str
    handler: Callable[[Command], dict[str, Any]] = lambda _: {}
    grouped: bool = True
    todo: str = ""
    start: str = "{}\n"


def _home(variable: str, usual: str) -> Path:
    """A folder: that of the variable, or the usual one below the home folder."""
    named = os.environ.get(variable)
    return Path(named) if named else Path.home() / usual


def _entry(command: str) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": _TIMEOUT_S}


HOOK_FILES: Final[Mapping[str, HookFile]] = {
    "claude-code": HookFile(
        lambda: _home("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
        ".claude/settings.json",
        lambda command: _entry(command.shell),  # on Windows it is Git's shell
        todo="start a new session, and look at the hooks with /hooks",
    ),
    "codex": HookFile(
        lambda: _home("CODEX_HOME", ".codex") / "hooks.json",
        ".codex/hooks.json",
        lambda command: {**_entry(command.shell), "commandWindows": command.windows},
        todo="start Codex and trust the hooks with /hooks: until then none of them runs",
    ),
    "gemini": HookFile(
        lambda: _home("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
        ".gemini/settings.json",
        lambda command: {
            "type": "command",
            "command": command.here,
            "name": "otel-loopguard",
            "timeout": 1000 * _TIMEOUT_S,
        },
        todo="start a new session, and look at the hooks with /hooks",
    ),
    "vscode": HookFile(
        lambda: Path.home() / ".copilot" / "hooks" / "otel-loopguard.json",
        ".github/hooks/otel-loopguard.json",
        lambda command: {**_entry(command.shell), "windows": command.windows},
        grouped=False,
        todo="start a new chat; VS Code runs the hooks of Claude Code, too: set one of both",
    ),
    "cursor": HookFile(
        lambda: Path.home() / ".cursor" / "hooks.json",
        ".cursor/hooks.json",
        lambda command: {"command": command.here},
        grouped=False,
        todo="restart Cursor; it runs the hooks of Claude Code, too: set one of both",
        start='{\n  "version": 1\n}\n',
    ),
    "opencode": HookFile(
        lambda: _home("XDG_CONFIG_HOME", ".config") / "opencode" / "plugin" / "otel-loopguard.js",
        ".opencode/plugin/otel-loopguard.js",
        todo="restart opencode",
    ),
}
"""By name of the agent; opencode has a plugin in place of hooks."""
