"""The process that writes a transcript: found, stopped and continued, on Linux.

Only processes of the user are looked at, never this one nor one above it. What has the file open to
write it is the one; an agent that opens it for each line (Claude Code, gemini-cli) is known by its
name and the folder that it works in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    import signal


class NoProcessError(LoopGuardError):
    """No process, or not just one, can be told to write a transcript."""


class AgentProcess:
    """A process, which stays the one that it was: ids are given anew.

    Attributes:
        number: Its id.
        name: What it calls itself.
    """

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.number = process.pid
        self.name = process.name()

    @property
    def state(self) -> str:
        """`stopped`, or what else psutil says of it; empty once it has ended."""
        try:
            state = self._process.status() if self._process.is_running() else ""
        except psutil.NoSuchProcess:
            return ""
        return "" if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) else state

    def send(self, number: signal.Signals) -> bool:
        """Sends a signal; False if the process has ended, or is another user's by now."""
        try:
            self._process.send_signal(number)
        except psutil.Error:
            return False
        return True


def can_stop() -> bool:
    """True if this system tells which process writes a file, and lets it be stopped."""
    return psutil.LINUX


def writer_of(paths: Sequence[Path], agent: str, cwd: str) -> AgentProcess:
    """The process that writes transcripts.

    Args:
        paths: The files.
        agent: Name of the coding agent.
        cwd: Folder that the session works in; empty where that is not known.

    Raises:
        NoProcessError: There is none, or more than one may be it.
    """
    mine = _own()
    files = {os.path.realpath(path) for path in paths}
    # A command that an agent runs may inherit the open file: the outermost one writes.
    writing = {each.pid for each in mine if _writes(each, files)}
    chosen = [each for each in mine if each.pid in writing and _parent(each) not in writing]
    how = "has the transcript open"
    if not chosen and cwd:
        # A launcher waits for the agent proper, which has its name: the innermost one writes.
        named = [each for each in mine if _is_agent(each, agent, cwd)]
        above = {_parent(each) for each in named}
        chosen = [each for each in named if each.pid not in above]
        how = f"is {agent} in {cwd}"
    if len(chosen) != 1:
        which = "no process of yours" if not chosen else f"more than one ({len(chosen)})"
        msg = f"{which} {how}"
        raise NoProcessError(msg)
    try:
        return AgentProcess(chosen[0])
    except psutil.Error:
        msg = "the process has just ended"
        raise NoProcessError(msg) from None


def _own() -> list[psutil.Process]:
    """The processes of this user, without this one and those above it."""
    this = psutil.Process()
    above = {this.pid, *(each.pid for each in this.parents())}
    return [each for each in psutil.process_iter() if each.pid not in above and _is_own(each)]


def _is_own(process: psutil.Process) -> bool:
    try:
        return process.uids().effective == os.geteuid()
    except psutil.Error:
        return False


def _writes(process: psutil.Process, files: set[str]) -> bool:
    """True if a process has one of the files open to write it."""
    try:
        return any(each.path in files and each.mode != "r" for each in process.open_files())
    except psutil.Error:
        return False


def _is_agent(process: psutil.Process, agent: str, cwd: str) -> bool:
    """True if a process is a coding agent that works in a folder."""
    # `claude`, or `node --option /usr/bin/gemini`; `claude-code` names its program `claude`.
    program = agent.partition("-")[0]
    try:
        if not Path(process.cwd()).samefile(cwd):
            return False
        words = [word for word in process.cmdline() if not word.startswith("-")]
        return program in {process.name(), *(Path(word).stem for word in words[:2])}
    except (psutil.Error, OSError, ValueError):
        return False


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None
