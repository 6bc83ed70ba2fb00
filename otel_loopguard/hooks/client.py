"""`hook run`: started by a coding agent at every event, which it passes to the judging process.

It fails open: whatever happens, it writes a JSON object and exits with 0. An agent waits for it
twice per call, so it imports next to nothing and leaves reading the event to the process.
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
    from collections.abc import Callable
    from typing import Final, NoReturn
else:
    try:  # the modules below them load in a third of the time
        import _signal as signal
        import _socket as socket
    except ImportError:  # another Python
        import signal
        import socket

# An event takes 10 ms; an agent stands still for as long as this where something is wrong.
_ANSWER_S: Final = 1.0
# Agents stop a hook by themselves after ten minutes at the latest.
_MOST_S: Final = 600.0
# Events of some minutes; by then a process runs, or none will.
_MOST_SPOOLED: Final = 1000
# A process takes half a second to start, on a busy machine several.
_STARTING_S: Final = 10.0
# An address of a Unix socket has 104 bytes on macOS, 108 on Linux.
_LONGEST_PATH: Final = 100
_SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP")


class Options:
    """The options of the command line."""

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
                raise ValueError(f"there is no option {argument!r:.100}")
        if not self.agent or self.mode not in MODES:
            msg = "expected: hook run AGENT [--mode observe|enforce] [--state DIR] [--no-process]"
            raise ValueError(msg)


def main(arguments: list[str]) -> NoReturn:
    """Reads an event from standard input, writes the answer and ends with 0."""
    for name in _SIGNALS:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, _on_signal)
    answer = NOTHING
    try:
        answer = run(arguments, read_all(0)) or b""
    except (KeyboardInterrupt, SystemExit):
        pass
    except BaseException as error:  # noqa: BLE001  # whatever it is: the agent goes on
        print_line(f"{type(error).__name__}: {error}")
    _write(answer)


def run(arguments: list[str], payload: bytes | None) -> bytes | None:
    """The answer to an event; None if it is written already.

    Args:
        arguments: The arguments after `hook run`.
        payload: What was on standard input; None if it was too large.
    """
    options = Options(arguments)
    if not payload or not payload.strip():
        return NOTHING
    folder = StateFolder(options.state)
    folder.make()
    if options.alone or not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
        return _judged_here(folder, options, payload)
    header = f"{GREETING} {__version__} {options.agent} {options.mode}\n"
    request = header.encode("utf-8", "surrogateescape") + payload
    answer = send(folder, request, _limit_s())
    if answer is not None:
        return _for_agent(answer)
    if problem := folder.problem:
        print_line(f"no event is judged: {problem}")
    if _is_stuck(folder):
        return _judged_here(folder, options, payload)
    try:
        start(folder)
    except OSError:
        return _judged_here(folder, options, payload)
    _spool(folder, request)
    return NOTHING


def send(folder: StateFolder, request: bytes, limit_s: float = _ANSWER_S) -> bytes | None:
    """Sends a request to the process and returns its answer; None if none accepted it.

    `{}` if one accepted it but did not answer in time: the request must not be sent again.
    """
    until = time.monotonic() + limit_s
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit_s)
    try:
        _connect(connection, folder.socket)
    except OSError:
        connection.close()
        return None
    found = b""
    try:
        _write_all(connection.send, request)
        connection.shutdown(socket.SHUT_WR)
        while len(found) < MOST_BYTES:
            connection.settimeout(max(until - time.monotonic(), 0.001))
            piece = connection.recv(65_536)
            if not piece:
                break
            found += piece
        else:
            found = NOTHING
    except OSError:  # no answer in time, or the process was killed
        found = NOTHING
    connection.close()
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
    """Reads a descriptor to its end; None if it holds too much."""
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, 1 << 20):
        size += len(piece)
        if size <= MOST_BYTES:
            pieces.append(piece)
    return b"".join(pieces) if size <= MOST_BYTES else None


def print_line(text: str) -> None:
    """Prints a line on standard error."""
    try:
        text = f"otel-loopguard: {text}".replace("\n", " ")[:500]
        os.write(2, text.encode("utf-8", "replace") + b"\n")
    except BaseException:  # noqa: BLE001, S110
        pass


def _for_agent(answer: bytes) -> bytes:
    """The answer for the agent; anything that is not an answer is printed on standard error."""
    if answer[:1] == b"{":
        return answer
    print_line(answer.decode("utf-8", "replace"))
    return NOTHING


def _limit_s() -> float:
    """Seconds to wait for an answer: `tuning.hooks.answer_s`, read without the settings' class."""
    try:
        wanted = float(os.environ.get("LOOPGUARD_TUNING__HOOKS__ANSWER_S", ""))
    except ValueError:
        return _ANSWER_S
    return wanted if 0 < wanted <= _MOST_S else _ANSWER_S


def _connect(connection: socket.socket, path: str) -> None:
    """Connects; a path too long for an address is used relative to its folder."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        connection.connect(path)
        return
    before = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        connection.connect(os.path.basename(path))
    finally:
        os.chdir(before)


def _write_all(write: Callable[[memoryview], int], data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[write(left) :]


def _is_stuck(folder: StateFolder) -> bool:
    """True if events have waited for a while without a process to read them."""
    oldest = min((name for name in os.listdir(folder.spool) if name[0] != "."), default="")
    began = oldest.partition("-")[0]
    return began.isdecimal() and abs(time.time_ns() - int(began)) > _STARTING_S * 1e9


def _spool(folder: StateFolder, request: bytes) -> None:
    """Stores an event for the process to read when it starts; drops it if too many wait."""
    if len(os.listdir(folder.spool)) >= _MOST_SPOOLED:
        return
    name = f"{time.time_ns():020d}-{os.getpid()}"
    hidden = os.path.join(folder.spool, f".{name}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(lambda part: os.write(descriptor, part), request)
        os.close(descriptor)
        os.rename(hidden, os.path.join(folder.spool, name))
    except BaseException:
        os.unlink(hidden)
        raise


def _is_first(folder: StateFolder) -> bool:
    """True if no other client has started the process in the last seconds."""
    for _ in range(2):
        try:
            os.close(os.open(folder.starting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        else:
            return True
        try:
            # A clock that was set back must not block clients until it catches up.
            if abs(time.time() - os.stat(folder.starting).st_mtime) < _STARTING_S:
                return False
            os.unlink(folder.starting)
        except FileNotFoundError:
            pass
    return False


def _detach(folder: str) -> None:
    """Closes the streams that the agent would wait for, and leaves its folder."""
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 1024)
    for name in _SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _judged_here(folder: StateFolder, options: Options, payload: bytes) -> None:
    """Writes the answer of this process itself, if no other can run; slow."""
    from otel_loopguard.hooks.process import judge_here  # noqa: PLC0415  # the whole guard

    def write(answer: bytes) -> None:
        _deliver(_for_agent(answer))

    judge_here(folder, options.agent, options.mode, payload, write)


def _on_signal(number: int, frame: object) -> None:
    del number, frame
    _write(NOTHING)


_begun = False


def _deliver(answer: bytes) -> None:
    """Writes the answer, once.

    Raises:
        OSError: Nobody reads it.
    """
    global _begun  # noqa: PLW0603
    if _begun:
        return
    _begun = True
    _write_all(lambda part: os.write(1, part), answer + b"\n")


def _write(answer: bytes) -> NoReturn:
    """Writes the answer and exits without finalising the interpreter."""
    try:  # noqa: SIM105  # contextlib is not loaded
        _deliver(answer)
    except BaseException:  # noqa: BLE001, S110  # nobody reads it
        pass
    os._exit(0)
