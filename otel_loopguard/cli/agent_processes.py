"""The process that writes a transcript: found, stopped and continued, on Linux.

Only processes of the user are looked at, never this one nor one above it. What has the file open to
write it is the one; an agent that opens it for each line (Claude Code, gemini-cli) is known by its
name and the folder that it works in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from otel_loopguard.errors import LoopGuardError

_PROC: Final = Path("/proc")
_PARENT: Final = 1  # these two are
_STARTED: Final = 19
"""Fields of /proc/PID/stat behind the name, from 0: state, parent, …, start; see proc(5)."""


class NoProcessError(LoopGuardError):
    """No process, or not just one, can be told to write a transcript."""


class AgentProcess(NamedTuple):
    """A process.

    Attributes:
        number: Its id.
        started: When it started, in ticks since the machine did: an id may be given anew.
        name: What it calls itself.
    """

    number: int
    started: int
    name: str

    @property
    def state(self) -> str:
        """`T` while it is stopped, as in proc(5); empty once it has ended."""
        found = _stat(self.number)
        same = found is not None and int(found[_STARTED]) == self.started
        return found[0] if found is not None and same and found[0] not in "ZX" else ""

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal; False if the process has ended."""
        if not self.state:
            return False
        try:
            os.kill(self.number, number)
        except OSError:
            return False
        return True


def can_stop() -> bool:
    """Whether this system tells which process has a file open, and lets it be stopped."""
    return (_PROC / "self/fdinfo").is_dir() and hasattr(signal, "SIGSTOP")


def writer_of(paths: Sequence[Path], agent: str, cwd: str) -> AgentProcess:
    """The process that writes transcripts.

    Args:
        paths: The files.
        agent: Name of the coding agent.
        cwd: Folder that the session works in; empty where that is not known.

    Raises:
        NoProcessError: There is none, or more than one may be it.
    """
    mine = list(_own())
    wanted = {(found.st_dev, found.st_ino) for found in _found(paths)}
    writing = {number for number in mine if _writes(number, wanted)}
    # A command that an agent runs may inherit the open file: the outermost one writes.
    found = {number for number in writing if _parent(number) not in writing}
    how = "has the transcript open"
    if not found and cwd:
        named = {number for number in mine if _is_agent(number, agent, cwd)}
        # A launcher waits for the agent proper, which has its name: the innermost one writes.
        found = named - {_parent(number) for number in named}
        how = f"is {agent} in {cwd}"
    if len(found) != 1:
        which = "no process of yours" if not found else f"more than one ({len(found)})"
        msg = f"{which} {how}"
        raise NoProcessError(msg)
    number = found.pop()
    stat = _stat(number)
    if stat is None:
        msg = "the process has just ended"
        raise NoProcessError(msg)
    return AgentProcess(number, int(stat[_STARTED]), _name(number))


def _own() -> Iterator[int]:
    """The processes of this user, without this one and those above it."""
    user, above = os.getuid(), {os.getpid()}
    number = _parent(os.getpid())
    while number:  # that of the first process is 0
        above.add(number)
        number = _parent(number)
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) not in above:
            with suppress(OSError):
                if entry.stat().st_uid == user:
                    yield int(entry.name)


def _writes(number: int, wanted: set[tuple[int, int]]) -> bool:
    """Whether a process has one of the files open to write it."""
    with suppress(OSError):
        for entry in (_PROC / str(number) / "fd").iterdir():
            with suppress(OSError):
                found = entry.stat()
                if (found.st_dev, found.st_ino) in wanted and _is_written(number, entry.name):
                    return True
    return False


def _is_written(number: int, descriptor: str) -> bool:
    text = (_PROC / str(number) / "fdinfo" / descriptor).read_text("ascii", "replace")
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _is_agent(number: int, agent: str, cwd: str) -> bool:
    """Whether a process is a coding agent that works in a folder."""
    try:
        if not (_PROC / str(number) / "cwd").samefile(cwd):
            return False
    except (OSError, ValueError):
        return False
    # `claude`, or `node --option /usr/bin/gemini`; `claude-code` names its program `claude`.
    program = agent.partition("-")[0]
    words = [word for word in _words(number) if not word.startswith("-")]
    return program in {_name(number), *(Path(word).stem for word in words[:2])}


def _name(number: int) -> str:
    try:
        return (_PROC / str(number) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _words(number: int) -> list[str]:
    """The command line of a process."""
    try:
        data = (_PROC / str(number) / "cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in data.split(b"\0")]


def _parent(number: int) -> int | None:
    found = _stat(number)
    return None if found is None else int(found[_PARENT])


def _stat(number: int) -> list[str] | None:
    """The fields behind the name, which may hold anything, of a process; None if it is gone."""
    try:
        text = (_PROC / str(number) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _found(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        with suppress(OSError):
            yield path.stat()
