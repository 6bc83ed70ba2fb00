"""`hook serve`: the process of one user that judges the events of coding agents.

The first event starts it, and it ends by itself. `otel_loopguard.hooks.state_folder` has its files
and the form of a request.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard._util.bounded import oversized
from otel_loopguard._util.errors import place_of
from otel_loopguard._util.fields import is_map
from otel_loopguard._util.locks import lock_file
from otel_loopguard._util.text import parsed_json
from otel_loopguard.engine import DecisionRecord, Settings, answer_people
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError, StoreError
from otel_loopguard.hooks.agents import AGENTS
from otel_loopguard.hooks.hook_guard import HookGuard
from otel_loopguard.hooks.state import HookState
from otel_loopguard.hooks.state_folder import GREETING, MODES, MOST_BYTES, NOTHING, StateFolder
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.hooks.telemetry import CallSpans

_PROGRAM: Final = "otel-loopguard"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
# Long enough for a user who reads what the agent did; starting again costs half a second.
_IDLE_S: Final = 30 * 60.0
# Events that clients stored meanwhile are looked for, and whether the process may end.
_LOOK_S: Final = 1.0
# Each change of version starts counts anew, and an upgrade leaves no client of the former version.
_STAYS_S: Final = 600.0
# A client waits for an answer for a second; what trickles in for longer is no client.
_READ_S: Final = 5.0
# Agents call tools side by side, each with a hook of its own.
_BACKLOG: Final = 128
# Events are judged one at a time; the others are read and answered meanwhile.
_THREADS: Final = 16
# A process that is ending lets go within that, and an event that is judged elsewhere is over.
_LOCK_S: Final = 2.0
# A collector that is there takes a second at most, with its handshake; nobody waits for this.
_SENDS_S: Final = 5.0
# The agent has its answer, and waits for the process to end.
_ANSWERED_S: Final = 1.0
# Some thousand decisions; the file before it is kept too.
_MOST_LOGGED: Final = 1024 * 1024
# What follows the last byte of the largest event: the line before it.
_HEAD_BYTES: Final = 1024
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED})
# Descriptors are short for as long as other connections take, some milliseconds each.
_PASSING_S: Final = 0.1


class RequestHandler:
    """Answers requests: events of agents, and what people ask. May be called from any thread.

    Args:
        folder: The folder of the state.
        former: The version whose process this one took over from; empty if there is none.

    Raises:
        LoopGuardError: A setting, or the state, cannot be used.

    Attributes:
        outdated: True once a client of another version called, whose process has to take over. Of
            the former one only after a while: two versions that are both in use would take turns.
        off: Why no event is judged, where that is wanted.
    """

    def __init__(self, folder: StateFolder, former: str = "") -> None:
        self.outdated = False
        self._former = former
        self._began = time.monotonic()
        self._folder = folder
        self._settings = Settings()
        self.off = "" if self._settings.enabled else "enabled (LOOPGUARD_ENABLED) is false"
        self._state = HookState(Path(folder.path))
        self._lock = threading.Lock()
        self._log = _Log(Path(folder.log))
        self._spans = self._call_spans()
        self._engines = {mode: self._engine(mode) for mode in MODES}

    def handle(
        self, request: bytes, at: int | None = None
    ) -> tuple[bytes, Callable[[], None] | None]:
        """Returns the answer to a request, and a callback for when it is not delivered.

        An answer that is no JSON object is for the standard error of the hook.

        Args:
            request: A greeting and an event, or what a person asks, as one JSON object.
            at: When it was made, nanoseconds since the epoch, where it was stored and nobody waits
                for the answer any more.
        """
        try:
            if request[:1] == b"{":
                return self._asked(request) + b"\n", None
            header, _, payload = request.partition(b"\n")
            greeting, version, name, mode = header.decode("utf-8", "replace").split(" ")
            if greeting != GREETING:
                return NOTHING, None
            stays = version == self._former and time.monotonic() - self._began < _STAYS_S
            self.outdated |= version != __version__ and not stays
            return self._judged(name, mode, payload, at)
        except Exception as error:  # noqa: BLE001  # the agent goes on
            self._log.fault(error)
            # With a full disk there is no log either.
            kept = not isinstance(error, StoreError)
            return NOTHING if kept else f"no event is judged: {error}".encode(), None

    def answer(self, request: bytes, write: Callable[[bytes], object]) -> None:
        """Answers a request; what cannot be written is said with the next answer.

        Args:
            request: As of `handle`.
            write: Delivers the answer, or raises `OSError`.
        """
        answer, undelivered = self.handle(request)
        try:
            write(answer)
        except OSError:
            if undelivered is not None:
                with suppress(Exception):
                    undelivered()

    def close(self) -> None:
        """Closes its resources; `send` is to follow."""
        for engine in self._engines.values():
            with suppress(Exception):
                engine.close()
        self._state.close()

    def send(self, limit_s: float) -> None:
        """Sends the remaining spans within a time limit; another process may own the state."""
        if self._spans is not None:
            with suppress(Exception):
                self._spans.close(limit_s)

    def handle_spooled(self) -> None:
        """Handles the events that clients stored while no process ran."""
        try:
            found = sorted(Path(self._folder.spool).iterdir())
        except OSError as error:  # usually too many open files
            self._log.fault(error)
            return
        for path in found:
            when = path.name.partition("-")[0]
            if path.name.startswith("."):  # still being written
                continue
            with suppress(OSError):
                request = _stored(path)
                path.unlink()
                if request:
                    self.handle(request, int(when) if when.isdecimal() else time.time_ns())

    def _call_spans(self) -> CallSpans | None:
        """The writer of spans; None if no endpoint is named, or a package is missing."""
        if not any(map(os.environ.get, _ENDPOINTS)):
            return None
        from otel_loopguard.hooks.telemetry import CallSpans  # noqa: PLC0415
        from otel_loopguard.sdk.provider import sdk_disabled  # noqa: PLC0415

        if sdk_disabled():
            return None
        try:
            return CallSpans()
        except Exception as error:  # noqa: BLE001  # the guard works without
            self._log.fault(error)
            return None

    def _engine(self, mode: str) -> HookGuard:
        shadow = mode == "observe" or self._settings.mode == "shadow"
        own = {"mode": "shadow" if shadow else "guard", "control_socket": ""}
        settings = self._settings.model_copy(update=own)
        # As a person can type it: the PATH may lack the environment of the program.
        program = Path(sys.executable).with_name(_PROGRAM)
        known = shutil.which(_PROGRAM) is not None or not program.is_file()
        name, where = _PROGRAM if known else quote(str(program)), ""
        if self._folder.path != StateFolder().path:
            where = f" --socket {quote(str(self._folder.socket))}"
        return HookGuard(
            settings, self._state, lock=self._lock, spans=self._spans,
            command=lambda what, session: f"{name} {what} {session}{where}",
            on_decision=lambda made: self._log.decision(mode, made),
        )  # fmt: skip

    def _judged(
        self, name: str, mode: str, payload: bytes, at: int | None
    ) -> tuple[bytes, Callable[[], None] | None]:
        agent, engine = AGENTS.get(name), self._engines.get(mode)
        if agent is None:
            msg = f"there is no agent {name!r:.100}: expected one of {', '.join(AGENTS)}"
            raise LoopGuardSettingsError(msg)
        if engine is None or oversized(payload) is not None:
            return NOTHING, None
        written = parsed_json(payload)
        if not is_map(written) or (event := agent.read(written)) is None:
            return NOTHING, None
        answer = engine.handle(event, at, answered=at is None)
        data = json.dumps(agent.answer(written, answer)).encode()
        return data, partial(engine.undelivered, event, answer)

    def _asked(self, request: bytes) -> bytes:
        """The reply to what a person asks."""

        def ask(engine: HookGuard, asked: dict[str, object]) -> dict[str, object]:
            try:
                return engine.ask(asked)
            except Exception as error:
                self._log.fault(error)
                raise

        engines = self._engines.values()
        faults = self._engines["observe"].guard.faults
        replies = [partial(ask, engine) for engine in engines]
        return answer_people(request.rstrip(b"\n"), replies, faults)


def _stored(path: Path) -> bytes:
    """A stored request; empty if it is not a file, as reading a pipe or a device may never end."""
    if path.is_symlink() or not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(MOST_BYTES + _HEAD_BYTES)


class _Log:
    """A line for every decision and every fault, in a file that does not grow without bound."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def decision(self, mode: str, made: DecisionRecord) -> None:
        """Logs a decision; in mode observe, the action it would have led to."""
        decision = made.decision
        if decision.action.value == "allow":
            return
        self._write(
            {
                "mode": mode,
                "would" if decision.shadow else "did": decision.action.value,
                "session": decision.session,
                "agent": made.agent,
                "tool": decision.tool,
                "detector": decision.detector,
                "rule": decision.reason,
                "message": decision.message,
                "decision": decision.id,
                "loop": decision.loop,
            }
        )

    def fault(self, error: BaseException) -> None:
        """Logs an error, without the content that was read."""
        text = str(error)[:300] if isinstance(error, (LoopGuardError, OSError)) else ""
        at = place_of(error, 1)
        self._write({"fault": type(error).__name__, "at": at, "message": text})

    def _write(self, row: dict[str, object]) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = orjson.dumps({"time": at, **row})
        with self._lock, suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _MOST_LOGGED:
                self._path.replace(self._path.with_suffix(".log.1"))
            with self._path.open("ab") as stream:
                stream.write(line + b"\n")


def main(arguments: list[str]) -> int:
    """Runs `hook serve`; returns the exit code."""
    parser = argparse.ArgumentParser("otel-loopguard hook serve")
    parser.add_argument("--state", help="folder of the state")
    parser.add_argument("--idle", type=float, default=_IDLE_S / 60, help="minutes until it ends")
    wanted = parser.parse_args(arguments)
    folder = StateFolder(wanted.state)
    try:
        return serve(folder, wanted.idle * 60)
    except (LoopGuardError, OSError) as error:
        # Nobody reads the output of a process that an event has started.
        _Log(Path(folder.log)).fault(error)
        print(f"otel-loopguard: {error}", file=sys.stderr)  # noqa: T201
        return 2


def serve(folder: StateFolder, idle_s: float = _IDLE_S) -> int:
    """Answers until nobody has asked for `idle_s`, unless another process does.

    Returns:
        The exit code.
    """
    os.umask(0o077)
    folder.make()
    with ExitStack() as last, ExitStack() as stack:
        # A killed process holds the lock until its last thread is gone.
        if not stack.enter_context(_locked(folder)):
            return 0
        Path(folder.lock).write_text(f"{os.getpid()}\n", "ascii")
        try:
            handler = RequestHandler(folder, folder.take_over(__version__))
        except LoopGuardError as error:
            # The starter's file stays: no client tries again for some seconds.
            _Log(Path(folder.log)).fault(error)
            folder.problem = str(error)
            print(f"otel-loopguard: {error}", file=sys.stderr)  # noqa: T201
            return 2
        last.callback(handler.send, _SENDS_S)
        stack.callback(handler.close)
        folder.problem = handler.off
        handler.handle_spooled()
        listening = stack.enter_context(_listening(folder))
        Path(folder.starting).unlink(missing_ok=True)
        handler.handle_spooled()
        _run(handler, folder, listening, idle_s)
    return 0


def _run(
    handler: RequestHandler, folder: StateFolder, listening: socket.socket, idle_s: float
) -> None:
    """Answers the connections of a socket until the process is idle or outdated."""
    used = time.monotonic()

    def converse(connection: socket.socket) -> None:
        nonlocal used
        with connection, suppress(OSError):
            request = _read(connection)
            if request is not None:
                connection.settimeout(_READ_S)
                handler.answer(request, connection.sendall)
        used = time.monotonic()

    listening.settimeout(_LOOK_S)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="loopguard-hook") as pool:
        while time.monotonic() - used < idle_s and not handler.outdated:
            try:
                connection, _ = listening.accept()
            except TimeoutError:  # noqa: PERF203
                handler.handle_spooled()
            except OSError as error:
                if error.errno not in _PASSING:
                    return
                time.sleep(_PASSING_S)  # until others have closed theirs
            else:
                used = time.monotonic()
                handler.handle_spooled()
                pool.submit(converse, connection)
        # A client that comes from now on starts another process; earlier ones are still answered.
        Path(folder.socket).unlink(missing_ok=True)
        listening.settimeout(0)
        with suppress(OSError):
            while True:
                pool.submit(converse, listening.accept()[0])


def judge_here(
    folder: StateFolder, agent: str, mode: str, payload: bytes, write: Callable[[bytes], object]
) -> None:
    """Judges one event in this process, after those that still wait.

    Args:
        folder: The folder of the state.
        agent: Name of the coding agent.
        mode: `observe` or `enforce`.
        payload: The event.
        write: Delivers the answer, or raises `OSError`.
    """
    os.umask(0o077)
    with ExitStack() as last, _locked(folder) as alone:
        if not alone:
            write(NOTHING)
            return
        try:
            handler = RequestHandler(folder)
        except LoopGuardError:
            for path in Path(folder.spool).iterdir():
                path.unlink(missing_ok=True)  # nothing will ever read it
            raise
        last.callback(handler.send, _ANSWERED_S)
        try:
            handler.handle_spooled()
            header = f"{GREETING} {__version__} {agent} {mode}\n".encode()
            handler.answer(header + payload, write)
        finally:
            handler.close()


@contextmanager
def _locked(folder: StateFolder) -> Generator[bool]:
    """Yields True if this is the only process that judges, within the block."""
    with open(folder.lock, "ab") as file:  # noqa: PTH123  # its descriptor is locked
        yield lock_file(file.fileno(), _LOCK_S)


@contextmanager
def _listening(folder: StateFolder) -> Generator[socket.socket]:
    """The socket, which only its user may open."""
    Path(folder.socket).unlink(missing_ok=True)
    os.chdir(folder.path)  # a path may be too long for an address
    with socket.socket(socket.AF_UNIX) as listening:
        Path(".hook.sock").unlink(missing_ok=True)
        listening.bind(".hook.sock")
        listening.listen(_BACKLOG)
        Path(".hook.sock").rename(folder.socket)  # once it can be connected to
        try:
            yield listening
        finally:
            Path(folder.socket).unlink(missing_ok=True)


def _read(connection: socket.socket) -> bytes | None:
    """A request; None if it is too large. Raises `TimeoutError` also if it trickles in."""
    pieces: list[bytes] = []
    size = 0
    until = time.monotonic() + _READ_S
    connection.settimeout(_READ_S)
    while piece := connection.recv(1 << 18):
        connection.settimeout(max(until - time.monotonic(), 0.001))
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES + _HEAD_BYTES:
            return None
        if pieces[0][:1] == b"{" and piece.endswith(b"\n"):
            break  # a person's request is one line
    return b"".join(pieces) or None
