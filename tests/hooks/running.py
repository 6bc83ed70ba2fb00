"""The program as a coding agent starts it, in a home of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.hooks import client
from otel_loopguard.hooks.state_folder import StateFolder
from tests.stores.servers import wait_for

PROGRAM = Path(sys.executable).with_name("otel-loopguard")
MESSAGE_S = 1.0
"""A model takes longer to ask again: what is asked for sooner is of the same message."""
FAILED = {"stdout": "1 failed", "stderr": "", "interrupted": False}


class Home:
    """A user's home, with the state of the hooks in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state" / "otel-loopguard"
        kept = {name: each for name, each in os.environ.items() if "LOOPGUARD" not in name}
        self.environment = kept | {
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            # Where sockets are looked for: other agents of the machine are not listed.
            "XDG_RUNTIME_DIR": str(folder),
        }
        # As in a program that is installed: compiled once, and not at each event.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.environment["LOOPGUARD_TUNING__HOOKS__ANSWER_S"] = "60"  # on a slow machine too
        # One call against the refusal is enough: each takes two processes.
        self.environment["LOOPGUARD_ABORT_AFTER"] = "2"
        self.calls = 0
        self._may_ask = 0.0

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [PROGRAM, *arguments], input=given, capture_output=True, check=False, timeout=120,
            env=self.environment, cwd=self.folder,
        )  # fmt: skip

    def event(self, name: str, *options: str, session: str = "chat", **more: Any) -> dict[str, Any]:
        """Sends an event of Claude Code; returns the answer: always JSON, with exit code 0."""
        payload = {"hook_event_name": name, "session_id": session, "cwd": "/app", **more}
        mode = options or ("--mode", "enforce")
        done = self.run("hook", "run", "claude-code", *mode, given=json.dumps(payload).encode())
        assert done.returncode == 0, done
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def call(
        self, *options: str, command: str = "pytest -q tests/test_a.py"
    ) -> tuple[dict[str, Any], ...]:
        """A call: the answers before and after it; of a refused one only the first."""
        self.calls += 1
        time.sleep(max(0, self._may_ask - time.monotonic()))
        said: dict[str, Any] = {
            "tool_name": "Bash", "tool_input": {"command": command},
            "tool_use_id": f"toolu_{self.calls}",
        }  # fmt: skip
        before = self.event("PreToolUse", *options, **said)
        if is_denied(before):
            self._may_ask = time.monotonic() + MESSAGE_S
            return (before,)
        return before, self.event("PostToolUse", *options, tool_response=FAILED, **said)

    def is_up(self) -> bool:
        return client.send(StateFolder(str(self.state)), b"{}\n") is not None

    def up(self) -> int:
        """Waits for the process; returns its id."""
        wait_for(self.is_up)
        return int((self.state / "hook.lock").read_text())

    def begin(self) -> int:
        """Starts the process by an event; returns its id."""
        assert self.event("SessionStart") == {}
        return self.up()

    def kill(self) -> None:
        """Kills the process, as the machine would."""
        number = self.up()
        os.kill(number, signal.SIGKILL)
        wait_for(lambda: _is_dead(number))

    def end(self) -> None:
        if self.is_up() or (self.state / "starting").exists():  # or comes up just now
            self.kill()


def told(home: Home, holds: Callable[[dict[str, Any]], object], *options: str) -> dict[str, Any]:
    """The first answer of which something holds, while the agent repeats its call.

    Real time passes between these calls, on a busy machine much of it, and rests weigh less.
    """
    for _ in range(20):
        for answer in home.call(*options):
            if holds(answer):
                return answer
    pytest.fail("it was never told so")


def is_denied(answer: dict[str, Any]) -> bool:
    return answer.get("hookSpecificOutput", {}).get("permissionDecision") == "deny"


def hint_of(answer: dict[str, Any]) -> str:
    return answer.get("hookSpecificOutput", {}).get("additionalContext", "")


def _is_dead(number: int) -> bool:
    """Whether all threads of a process have ended: the last one closes its files."""
    try:
        threads = list(Path(f"/proc/{number}/task").iterdir())
        stat = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return len(threads) < 2 and stat.rpartition(")")[2].split()[0] == "Z"
