"""`hook run`: what a coding agent starts at every event; hands it to the process that judges.

It fails open: whatever happens, it writes a JSON object and ends with 0. An agent waits for it
twice a call, so it imports next to nothing: the process reads the event, and this does not.
"""

from __future__ import annotations

import os
import sys
import time

from otel_loopguard.hooks.state_folder import GREETING, MODES, MOST_BYTES, NOTHING, StateFolder
from otel_loopguard.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import Final, NoReturn
else:
    try:  # what the others are made of, at a third of their cost
        import _signal as signal
        import _socket as socket
    except ImportError:  # another Python
        import signal
        import socket

_ANSWER_S: Final = 1.0
_MOST_S: Final = 600.0
_MOST_SPOOLED: Final = 1000
_STARTING_S: Final = 10.0
_LONGEST_PATH: Final = 100
_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP")


class Wanted:
    """The arguments of the command line."""

    def __init__(self, arguments: list[str]) -> None:
        self.agent = ""
        self.mode = "observe"
        self.state: str | None = None
        self.alone = False
        left = iter(arguments)
        for argument in left:
            name, given, value = argument.partition("=")
            if name == "--mode":
                self.mode = value if given else next(left, "")
            elif name == "--state":
                self.state = value if given else next(left, "")
            elif argument == "--no-process":
                self.alone = True
            elif not argument.startswith("-") and not self.agent:
                self.agent = argument
            else:
                msg = f"there is no option {argument!r:.100}"
                raise ValueError(msg)
        if not self.agent or self.mode not in MODES:
            msg = "expected: hook run AGENT [--mode observe|enforce] [--state DIR] [--no-process]"
            raise ValueError(msg)


def main(arguments: list[str]) -> NoReturn:
    """Reads an event from standard input, writes the answer and ends with 0."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, _ended)
    answer = NOTHING
    try:
        answer = run(arguments, read_all(0))
    except BaseException as error:  # noqa: BLE001  # whatever it is: the agent goes on
        complain(error)
    _write(answer)


def run(arguments: list[str], payload: bytes | None) -> bytes:
    """The answer to an event.

    Args:
        arguments: What stands after `hook run`.
        payload: What stood on standard input; None where it was too large.
    """
    wanted = Wanted(arguments)
    if not payload or not payload.strip():
        return NOTHING
    folder = StateFolder(wanted.state)
    folder.make()
    if wanted.alone or not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
        return _judged_here(folder, wanted, payload)
    header = f"{GREETING} {__version__} {wanted.agent} {wanted.mode}\n"
    request = header.encode("utf-8", "surrogateescape") + payload
    answer = asked(folder, request, _limit_s())
    if answer is not None:
        return answer if answer[:1] == b"{" else NOTHING
    if _is_stuck(folder):
        return _judged_here(folder, wanted, payload)
    try:
        start(folder)
    except OSError:
        return _judged_here(folder, wanted, payload)
    _spool(folder, request)
    return NOTHING


def asked(folder: StateFolder, request: bytes, limit_s: float = _ANSWER_S) -> bytes | None:
    """What the process answers; None where there is none that took the request.

    Nothing (`{}`) where it has taken it and gives no answer in time: it is not to be sent again.
    """
    until = time.monotonic() + limit_s
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(limit_s)
    try:
        _connect(line, folder.socket)
    except OSError:
        line.close()
        return None
    found = b""
    try:
        _send(line, request)
        line.shutdown(socket.SHUT_WR)
        while len(found) < MOST_BYTES:
            line.settimeout(max(until - time.monotonic(), 0.001))
            piece = line.recv(65_536)
            if not piece:
                break
            found += piece
        else:
            found = NOTHING
    except OSError:  # no answer in time, or the process was killed
        found = NOTHING
    line.close()
    return found or NOTHING


def start(folder: StateFolder) -> None:
    """Starts the process, detached, unless another client is just doing so.

    Raises:
        OSError: It cannot be started.
    """
    if not _is_first(folder):
        return
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    # From here on this is the child: it must not return.
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _detach(folder.path)
        code = "from otel_loopguard.cli import main; main()"
        command = [sys.executable, "-c", code, "hook", "serve", "--state", folder.path]
        os.execv(sys.executable, command)  # noqa: S606  # itself
    finally:
        os._exit(1)


def read_all(descriptor: int) -> bytes | None:
    """What stands on a descriptor, to its end; None where it is too large."""
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, 1 << 20):
        size += len(piece)
        if size <= MOST_BYTES:
            pieces.append(piece)
    return b"".join(pieces) if size <= MOST_BYTES else None


def complain(error: BaseException) -> None:
    """Says on standard error what went wrong, on one line, if anybody reads it."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return
    try:
        text = f"otel-loopguard: {type(error).__name__}: {error}".replace("\n", " ")[:500]
        os.write(2, text.encode("utf-8", "replace") + b"\n")
    except BaseException:  # noqa: BLE001, S110
        pass


def _limit_s() -> float:
    """Seconds that an answer is waited for: `tuning.hooks.answer_s`, read without its class."""
    try:
        wanted = float(os.environ.get("LOOPGUARD_TUNING__HOOKS__ANSWER_S", ""))
    except ValueError:
        return _ANSWER_S
    return wanted if 0 < wanted <= _MOST_S else _ANSWER_S


def _connect(line: socket.socket, path: str) -> None:
    """Connects; a path that is too long for an address is taken from its folder."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        line.connect(path)
        return
    before = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        line.connect(os.path.basename(path))
    finally:
        os.chdir(before)


def _send(line: socket.socket, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[line.send(left) :]


def _is_stuck(folder: StateFolder) -> bool:
    """Whether events have waited for long, and no process has come for them."""
    oldest = min((name for name in os.listdir(folder.spool) if name[0] != "."), default="")
    began = oldest.partition("-")[0]
    return began.isdigit() and abs(time.time_ns() - int(began)) > _STARTING_S * 1e9


def _spool(folder: StateFolder, request: bytes) -> None:
    """Puts an event where the process takes it in first; of too many the newest is left out."""
    if len(os.listdir(folder.spool)) >= _MOST_SPOOLED:
        return
    name = f"{time.time_ns():020d}-{os.getpid()}"
    hidden = os.path.join(folder.spool, f".{name}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = memoryview(request)
        while left:
            left = left[os.write(descriptor, left) :]
        os.close(descriptor)
        os.rename(hidden, os.path.join(folder.spool, name))
    except BaseException:
        os.unlink(hidden)
        raise


def _is_first(folder: StateFolder) -> bool:
    """Whether nobody else has started the process in the last seconds."""
    for _ in range(2):
        try:
            os.close(os.open(folder.starting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        else:
            return True
        try:
            # A clock that was set back must not keep everybody waiting until it is there again.
            if abs(time.time() - os.stat(folder.starting).st_mtime) < _STARTING_S:
                return False
            os.unlink(folder.starting)
        except FileNotFoundError:
            pass
    return False


def _detach(folder: str) -> None:
    """Leaves nothing open that the agent waits for, and is in nobody's way."""
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 1024)
    for name in _SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _judged_here(folder: StateFolder, wanted: Wanted, payload: bytes) -> bytes:
    """The answer of this process itself, where there can be no other; slow."""
    from otel_loopguard.hooks.process import judge_here  # noqa: PLC0415  # the whole guard

    return judge_here(folder, wanted.agent, wanted.mode, payload)


def _ended(number: int, frame: object) -> None:
    del number, frame
    _write(NOTHING)


def _write(answer: bytes) -> NoReturn:
    """Writes the answer and ends, without taking the interpreter down piece by piece."""
    left = memoryview(answer + b"\n")
    try:
        while left:
            left = left[os.write(1, left) :]
    except BaseException:  # noqa: BLE001, S110  # nobody reads it
        pass
    os._exit(0)
