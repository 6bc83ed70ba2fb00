"""The folder of the hooks' state, and how their two programs talk to each other.

A request is the greeting, the version, the agent and the mode, on a line, and then the event as the
agent wrote it; the answer is what the agent is to read. A person's request is one JSON object.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without typing: an agent waits for this at every event
if TYPE_CHECKING:
    from typing import Final

NOTHING: Final = b"{}"
"""The answer that changes nothing."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the largest event that is judged."""
# It is printed as one line of 500 characters.
_MOST_PROBLEM: Final = 2_000
# PyPI's versions are shorter.
_MOST_VERSION: Final = 100
GREETING: Final = "hook-1"
"""Start of a request; the number changes with the format of requests."""
MODES: Final = ("observe", "enforce")


class StateFolder:
    """The folder of the state, and the paths in it."""

    def __init__(self, folder: str | None = None) -> None:
        self.path = os.path.abspath(folder or default_folder())
        self.socket = os.path.join(self.path, "hook.sock")
        self.spool = os.path.join(self.path, "spool")
        self.starting = os.path.join(self.path, "starting")
        self.lock = os.path.join(self.path, "hook.lock")
        self.log = os.path.join(self.path, "hook.log")
        self._version = os.path.join(self.path, "version")
        self._problem = os.path.join(self.path, "problem")

    @property
    def problem(self) -> str:
        """Why no process could start the last time; empty if one did."""
        try:
            with open(self._problem, encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_PROBLEM).strip()
        except OSError:
            return ""

    @problem.setter
    def problem(self, text: str) -> None:
        if text:
            with open(self._problem, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
        elif os.path.exists(self._problem):
            os.unlink(self._problem)

    def take_over(self, version: str) -> str:
        """Notes the version of the process; returns that of the one before where it was another."""
        try:
            with open(self._version, encoding="ascii", errors="replace") as file:
                former = file.read(_MOST_VERSION)
        except OSError:
            former = ""
        if former == version:
            return ""
        try:
            with open(self._version, "w", encoding="ascii") as file:
                file.write(version)
        except OSError:
            pass  # it is served all the same
        return former

    def make(self) -> None:
        """Makes the folder where there is none.

        Raises:
            OSError: It cannot be made, or others may write into it or lead elsewhere.
        """
        os.makedirs(self.path, 0o700, exist_ok=True)
        if hasattr(os, "getuid"):
            # Of a link both: in a folder for temporary files anybody may have laid it.
            link, found = os.lstat(self.path), os.stat(self.path)
            if {link.st_uid, found.st_uid} != {os.getuid()} or found.st_mode & 0o022:
                msg = f"folder {self.path!r} belongs to another user, or others may write into it"
                raise PermissionError(msg)
        os.makedirs(self.spool, 0o700, exist_ok=True)


def default_folder() -> str:
    """The folder that is used unless `--state` names one."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(os.path.expanduser("~"), ".local", "state")
    if not os.path.isabs(home) and hasattr(os, "getuid"):  # the user has no name
        from tempfile import gettempdir  # noqa: PLC0415  # an agent waits for this at every event

        return os.path.join(gettempdir(), f"otel-loopguard-state-{os.getuid()}")
    return os.path.join(home, "otel-loopguard")
