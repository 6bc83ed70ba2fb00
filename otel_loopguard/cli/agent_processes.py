"""The process that writes a transcript: found, stopped and continued, on Linux.

Only processes of the user are looked at, never this one nor one above it. What has the file open to
write it is the one; an agent that opens it for each line (Claude Code, gemini-cli) is known by its
name and the folder that it works in.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
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
        same = found and int(found[_STARTED]) == self.started
        return found[0] if same and found[0] not in "ZX" else ""

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
    """True if this system tells which process has a file open, and lets it be stopped."""
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
    wanted: set[tuple[int, int]] = set()
    for path in paths:
        with suppress(OSError):
            found = path.stat()
            wanted.add((found.st_dev, found.st_ino))
    writing = {number for number in mine if _writes(number, wanted)}
    # A command that an agent runs may inherit the open file: the outermost one writes.
    chosen = {number for number in writing if _parent(number) not in writing}
    how = "has the transcript open"
    if not chosen and cwd:
        named = {number for number in mine if _is_agent(number, agent, cwd)}
        # A launcher waits for the agent proper, which has its name: the innermost one writes.
        chosen = named - {_parent(number) for number in named}
        how = f"is {agent} in {cwd}"
    if len(chosen) != 1:
        which = "no process of yours" if not chosen else f"more than one ({len(chosen)})"
        msg = f"{which} {how}"
        raise NoProcessError(msg)
    number = chosen.pop()
    stat = _stat(number)
    if not stat:
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
    """True if a process has one of the files open to write it."""
    with suppress(OSError):
        for entry in (_PROC / str(number) / "fd").iterdir():
            with suppress(OSError):
                found = entry.stat()
                if (found.st_dev, found.st_ino) in wanted and _is_written(number, entry.name):
                    return True
    return False


def _is_written(number: int, descriptor: str) -> bool:
    for line in _read(number, f"fdinfo/{descriptor}").splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _is_agent(number: int, agent: str, cwd: str) -> bool:
    """True if a process is a coding agent that works in a folder."""
    try:
        if not (_PROC / str(number) / "cwd").samefile(cwd):
            return False
    except (OSError, ValueError):
        return False
    # `claude`, or `node --option /usr/bin/gemini`; `claude-code` names its program `claude`.
    program = agent.partition("-")[0]
    words = [word for word in _read(number, "cmdline").split("\0") if not word.startswith("-")]
    return program in {_name(number), *(Path(word).stem for word in words[:2])}


def _name(number: int) -> str:
    return _read(number, "comm").strip()


def _parent(number: int) -> int | None:
    found = _stat(number)
    return int(found[_PARENT]) if found else None


def _stat(number: int) -> list[str]:
    """The fields behind the name, which may hold anything, of a process; none if it is gone."""
    return _read(number, "stat").rpartition(")")[2].split()


def _read(number: int, name: str) -> str:
    """What the system tells of a process; empty if it is gone."""
    try:
        return os.fsdecode((_PROC / str(number) / name).read_bytes())
    except OSError:
        return ""
