"""`watch --agents`: judges coding agents by their transcripts, warns, and stops stuck ones."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import psutil

from otel_loopguard._control.flag import APPLICATION, POLICY, Flag
from otel_loopguard.cli.live import user_name
from otel_loopguard.cli.output import Inputs, line, say, word
from otel_loopguard.cli.replay import FOREVER_S
from otel_loopguard.core import Action, Decision
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError, RecordingError
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.hooks.install import HOOK_FILES
from otel_loopguard.replay import FollowedFolders, FollowedSession
from otel_loopguard.replay.transcripts import READERS
from otel_loopguard.replay.transcripts.folders import holds_sessions, usual_folders

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

LEAST_S: Final = 0.5
"""Seconds between two looks, at least: an agent writes a line in seconds, and a walk through its
folders asks the disk for each file."""
_YES: Final = frozenset(("y", "yes"))
_NO: Final = frozenset(("n", "no"))


def watch_agents(
    settings: Settings, folders: Sequence[Path], *, may_stop: bool, interval_s: float, rounds: int
) -> int:
    """Follows transcripts until Ctrl-C, and prints a line per decision; returns the exit code.

    Args:
        settings: Of the guard.
        folders: What is followed; without any, where agents keep their transcripts.
        may_stop: True if processes of sessions that go in circles are stopped.
        interval_s: Time between two looks.
        rounds: Looks before it ends; 0: until Ctrl-C.

    Raises:
        LoopGuardError: There is nothing to follow, or an option cannot be used here.
    """
    if interval_s < LEAST_S:
        msg = f"--interval {interval_s:g}: with --agents at least {LEAST_S:g} seconds"
        raise LoopGuardSettingsError(msg)
    _check(settings, folders, may_stop)
    places = [(None, folder) for folder in folders] or usual_folders()
    watch = _AgentWatch(settings, folders, may_stop, interval_s)
    what = ", ".join(str(folder) if name is None else f"{name} {folder}" for name, folder in places)
    say(f"following {what}; Ctrl-C ends it")
    read = {reader.agent for reader in READERS}
    others = ", ".join(agent for agent in HOOK_FILES if agent not in read)
    say(f"not followed, as their transcripts cannot be read: {others}", error=True)
    ends = [one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN]

    def end(*_: object) -> None:
        # Here, for two come at once where a terminal is closed: nothing keeps what is stopped from
        # going on.
        for one in ends:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [signal.signal(one, end) for one in ends]
    try:
        with watch.reports:
            watch.run(rounds or sys.maxsize)
    except KeyboardInterrupt:
        pass
    finally:
        for one in ends:
            signal.signal(one, signal.SIG_IGN)
        watch.close()
        for one, handler in zip(ends, before, strict=True):
            signal.signal(one, handler)
    return 0


_ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that end the command, after which whatever it stopped goes on."""


def _check(settings: Settings, folders: Sequence[Path], may_stop: bool) -> None:
    if not settings.enabled:
        msg = "nothing would be judged: enabled (LOOPGUARD_ENABLED) is false"
        raise LoopGuardSettingsError(msg)
    if may_stop and not psutil.LINUX:
        msg = "--may-stop: this system does not tell which process writes a file; Linux does"
        raise LoopGuardSettingsError(msg)
    if may_stop and settings.mode == "shadow":
        raise LoopGuardSettingsError("--may-stop: mode = shadow stops nothing; expected guard")
    for folder in folders:
        if not holds_sessions(folder):
            raise RecordingError(f"--folder {folder}: there is no such folder")


@dataclass(slots=True)
class _Stopped:
    """A session whose process is stopped, until its flag is changed."""

    process: psutil.Process
    flag: Flag
    cleared: int  # how often its flag was cleared before
    seen: bool = False  # as stopped


class _AgentWatch:
    """Judges what is written, tells what is decided, and holds processes until people answer."""

    def __init__(
        self, settings: Settings, folders: Sequence[Path], may_stop: bool, interval_s: float
    ) -> None:
        self._may_stop = may_stop
        self.reports = Inputs(())  # of broken lines
        self._interval_s = interval_s
        self._webhook = bool(settings.webhook_url)
        self._made: list[Decision] = []
        self._stopped: dict[str, _Stopped] = {}
        self._typing = sys.stdin is not None  # until standard input ends
        self._guard = LoopGuard(
            _live(settings),
            local=False,
            on_decision=lambda _session, decision: self._made.append(decision),
        )
        self._followed = FollowedFolders(folders, self.reports.report, self._guard.forget)

    def run(self, rounds: int) -> None:
        """Looks again and again."""
        for left in range(rounds, 0, -1):
            for session in self._followed.look():
                self._judge(session)
            self._answer()
            if left > 1:
                self._wait()

    def close(self) -> None:
        """Lets everything go on that is stopped."""
        # Before anything is said: the terminal may be gone, or the reader of the pipe.
        for stopped in self._stopped.values():
            _send(stopped.process, signal.SIGCONT)
        try:
            for key in list(self._stopped):
                self._let_go(key, "goes on: the watch ends")
        finally:
            self._guard.flush()
            self._guard.shutdown()

    def _judge(self, session: FollowedSession) -> None:
        for found in session.look():
            self._guard.observe(found.step, found.session)
            made, self._made = self._made, []
            for decision in made:
                if not found.old and decision.action is not Action.ALLOW:
                    self._tell(session, found.session, decision)

    def _tell(self, session: FollowedSession, key: str, decision: Decision) -> None:
        action = f"would {word(decision.action)}" if decision.shadow else word(decision.action)
        where = ", ".join(filter(None, (session.agent, Path(session.cwd).name)))
        self._say(f"{action} {key} ({where}): {line(decision.message, 400)}")
        if not decision.action.stops and decision.action is not Action.ASK:
            return
        stops = self._may_stop and decision.action.stops and not decision.shadow
        held = stops and self._stop(session, key)
        if held or self._webhook:
            escalations = self._guard.escalation().escalations
            escalations.escalate(key, decision.message, hold=held)

    def _stop(self, session: FollowedSession, key: str) -> bool:
        """Stops the process that writes a session; whether it is stopped by that."""
        flag = self._guard.flag_of(key)
        if flag is None:
            return False
        if key in self._stopped:  # by a line before, of those that were written meanwhile
            self._stopped[key].cleared = _without_abort(flag)
            return True
        try:
            process = writer_of(list(session.transcripts), session.agent, session.cwd)
            named = f"process {process.pid} ({process.name()})"
        except (LoopGuardError, psutil.Error) as error:
            self._say(f"not stopped: {error}")
            return False
        if _state(process) == psutil.STATUS_STOPPED:
            self._say(f"{named} is stopped already")
            return False
        # Before the signal: an interrupt between the two must not leave it stopped.
        self._stopped[key] = _Stopped(process, flag, _without_abort(flag))
        if not _send(process, signal.SIGSTOP):
            del self._stopped[key]
            self._say(f"not stopped: process {process.pid} cannot be sent a signal")
            return False
        self._followed.kept.add(key)
        self._say(
            f"{named} is stopped until a person answers: "
            f"otel-loopguard resume {quote(key)}, or abort {quote(key)}"
        )
        self._ask()
        return True

    def _ask(self) -> None:
        """Asks about the session that was stopped first."""
        if self._typing and self._stopped:
            say(f"let {next(iter(self._stopped))} go on? y goes on, n ends it:")

    def _answer(self) -> None:
        """Does what was answered about the processes that are stopped."""
        for key, stopped in list(self._stopped.items()):
            control, state = stopped.flag.control, _state(stopped.process)
            if not state:
                self._forget(key)
                self._say(f"process {stopped.process.pid} of {key} has ended")
            elif control.action is Action.ABORT and control.by != POLICY:
                # It takes the signal once it goes on.
                _send(stopped.process, signal.SIGTERM)
                self._let_go(key, f"was told to end, by {control.by}")
            elif stopped.flag.cleared > stopped.cleared:
                self._let_go(key, f"goes on, by {control.by or 'somebody'}")
            elif state != psutil.STATUS_STOPPED and stopped.seen:
                stopped.flag.clear(by=user_name())
                self._let_go(key, "goes on: something else continued it")
            else:
                stopped.seen = stopped.seen or state == psutil.STATUS_STOPPED

    def _let_go(self, key: str, why: str) -> None:
        stopped = self._stopped[key]
        _send(stopped.process, signal.SIGCONT)
        self._forget(key)
        self._say(f"process {stopped.process.pid} of {key} {why}")

    def _forget(self, key: str) -> None:
        del self._stopped[key]
        self._followed.kept.discard(key)
        self._ask()

    def _wait(self) -> None:
        """Waits for the next look, or for what is typed."""
        if not (self._typing and self._stopped and _is_ours(sys.stdin.fileno())):
            time.sleep(self._interval_s)
            return
        until = time.monotonic() + self._interval_s
        ready, _, _ = select.select([sys.stdin], [], [], self._interval_s)
        if ready:
            self._typed(os.read(sys.stdin.fileno(), 4096))
            self._answer()
            time.sleep(max(0.0, until - time.monotonic()))

    def _typed(self, data: bytes) -> None:
        self._typing = bool(data)
        for said in data.decode("utf-8", "replace").split("\n")[:-1]:
            first = next(iter(self._stopped.values()), None)
            if first is None:
                return
            if said.strip().casefold() in _YES:
                first.flag.clear(by=user_name())
            elif said.strip().casefold() in _NO:
                first.flag.set(Action.ABORT, reason="aborted by hand", by=user_name())
            else:
                self._ask()
            self._answer()

    @staticmethod
    def _say(text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {text}")
        sys.stdout.flush()


def _live(settings: Settings) -> Settings:
    """The settings of hooks, for sessions whose steps are told late and perhaps again."""
    return settings.model_copy(
        update={
            # The transcripts are what is kept: journals of a store would count steps twice.
            "store_url": type(settings.store_url)(""),
            "control_socket": settings.control_socket or "auto",
            "session_ttl_s": FOREVER_S,
            # What was decided before is not put before people again: `_tell` does it for the rest.
            "escalate_on": (),
            # A process stays stopped until somebody answers.
            "escalation_fallback": "wait",
        }
    )


def _without_abort(flag: Flag) -> int:
    """Takes back an abort of the policy, which a person is to decide on; how often it was cleared.

    An abort takes precedence: nobody's would be told from it.
    """
    if flag.control.action is Action.ABORT:
        flag.clear(by=APPLICATION)
    return flag.cleared


def _is_ours(descriptor: int) -> bool:
    """True if what is typed is for this process: not while it runs in the background."""
    if not os.isatty(descriptor):
        return True
    with suppress(OSError):
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


_LOOKED_AT: Final = ["ppid", "uids", "name", "cwd", "cmdline", "open_files"]


def writer_of(paths: Sequence[Path], agent: str, cwd: str) -> psutil.Process:
    """The process that writes transcripts: one of the user, not this one nor one above it.

    What has a file open to write it is the one; an agent that opens it for each line (Claude Code,
    gemini-cli) is known by its name and the folder that it works in.

    Args:
        paths: The files.
        agent: Name of the coding agent.
        cwd: Folder that the session works in; empty where that is not known.

    Raises:
        LoopGuardError: There is none, or more than one may be it.
    """
    this = psutil.Process()
    above = {this.pid, *(each.pid for each in this.parents())}
    mine = {
        each.pid: each
        for each in psutil.process_iter(_LOOKED_AT)
        if each.pid not in above
        and (uids := each.info["uids"]) is not None  # it may be hidden
        and uids.effective == os.geteuid()
    }
    files = {os.path.realpath(path) for path in paths}
    # A command that an agent runs may inherit the open file: the outermost one writes.
    writing = {pid for pid, each in mine.items() if _writes(each.info, files)}
    chosen = [pid for pid in writing if mine[pid].info["ppid"] not in writing]
    how = "has the transcript open"
    if not chosen and cwd:
        # A launcher waits for the agent proper, which has its name: the innermost one writes.
        named = {pid for pid, each in mine.items() if _is_agent(each.info, agent, cwd)}
        chosen = list(named - {mine[pid].info["ppid"] for pid in named})
        how = f"is {agent} in {cwd}"
    if len(chosen) != 1:
        which = "no process of yours" if not chosen else f"more than one ({len(chosen)})"
        raise LoopGuardError(f"{which} {how}")
    return mine[chosen[0]]


def _writes(found: Mapping[str, Any], files: set[str]) -> bool:
    """True if a process has one of the files open to write it."""
    return any(one.path in files and one.mode != "r" for one in found["open_files"] or ())


def _is_agent(found: Mapping[str, Any], agent: str, cwd: str) -> bool:
    """True if a process is a coding agent that works in a folder."""
    # `claude`, or `node --option /usr/bin/gemini`; `claude-code` names its program `claude`.
    program = agent.partition("-")[0]
    words = [word for word in found["cmdline"] or () if not word.startswith("-")]
    try:
        there = bool(found["cwd"]) and Path(found["cwd"]).samefile(cwd)
    except (OSError, ValueError):
        return False
    return there and program in {found["name"], *(Path(word).stem for word in words[:2])}


def _state(process: psutil.Process) -> str:
    """`stopped`, or what else psutil says of a process; empty once it has ended."""
    try:
        state = process.status() if process.is_running() else psutil.STATUS_DEAD
    except psutil.NoSuchProcess:
        return ""
    return "" if state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) else state


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    """Sends a signal; False if the process has ended, or is another user's by now."""
    try:
        process.send_signal(number)  # never to another one that was given its id
    except psutil.Error:
        return False
    return True
