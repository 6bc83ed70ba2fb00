"""The Unix socket of a process: requests as lines of JSON, from the same user only."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopguard.desk.places import path_of
from otel_loopguard.desk.wire import MOST_REPLY, MOST_REQUEST, Message, decoded, refusal
from otel_loopguard.escalation.encoding import encoded
from otel_loopguard.faults import swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from otel_loopguard.desk.desk import Desk
    from otel_loopguard.faults import Faults

_BACKLOG: Final = 16
_LOOK_S: Final = 0.5
_LIMIT_S: Final = 2.0
"""Seconds that one connection may take in all."""
_CREDENTIALS: Final = struct.Struct("3i")
_numbers: Final = iter(range(1, sys.maxsize))


class Server:
    """Serves a desk on a Unix socket that only its user may open (0600), on one daemon thread.

    One request and one reply a connection, one connection after the other, two seconds each at
    most. What is no request is refused; what is too long is cut off. It ends with the desk, and
    takes its socket away.

    Args:
        setting: `auto` or a path: the setting `control_socket`.
        desk: Answers requests; held weakly.
        faults: Where faults are counted.

    Attributes:
        path: Where the socket is; None before it is made, and if it cannot be, which is logged.
    """

    def __init__(self, setting: str, desk: Desk, faults: Faults) -> None:
        self._setting = setting
        self._desk = weakref.ref(desk)
        self._faults = faults
        self._listener: socket.socket | None = None
        self._ended = threading.Event()
        self.path: Path | None = None
        renew_after_fork(self)

    def start(self) -> None:
        """Starts the thread, which makes the socket: a file system may be slow."""
        try:
            threading.Thread(target=self._run, name="loopguard-socket", daemon=True).start()
        except RuntimeError as fault:
            self._faults.note("desk", fault)

    def close(self) -> None:
        """Ends the thread, and takes the socket away at once."""
        self._ended.set()
        path, self.path = self.path, None
        if path is not None:
            _removed(path, os.getpid())

    def forked(self) -> None:
        """In the child of a fork: the socket is the parent's."""
        self.path = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _run(self) -> None:
        with swallow(self._faults, "desk"):
            self._open()
        listener = self._listener
        while listener is not None and not self._ended.is_set() and self._desk() is not None:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                break
            with connection, swallow(self._faults, "desk"), suppress(OSError):
                self._serve(connection)
        self._clear()

    def _open(self) -> None:
        try:
            path = path_of(self._setting, next(_numbers))
            self._listener = _bound(path)
        except OSError as error:
            logger.warning("control_socket = %r: cannot be served: %s", self._setting, error)
            return
        # At the end of the program too, if nobody closes it.
        weakref.finalize(self, _removed, path, os.getpid())
        self.path = path

    def _clear(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        if not _same_user(connection):
            return
        until = time.monotonic() + _LIMIT_S
        line = _line(connection, until)
        reply = self._reply(line)
        data = encoded(reply)
        if len(data) > MOST_REPLY:
            data = encoded(refusal("too_large", "the reply is too large"))
        connection.settimeout(max(until - time.monotonic(), 0.1))
        connection.sendall(data + b"\n")

    def _reply(self, line: bytes | None) -> Message:
        if line is None:
            return refusal("too_long", f"a request has at most {MOST_REQUEST} bytes")
        request = decoded(line, MOST_REQUEST)
        desk = self._desk()
        if request is None or desk is None:
            return refusal("unknown_request", "a request is one JSON object on one line")
        return desk.reply(request)


def _removed(path: Path, process: int) -> None:
    """Takes a socket away, but not a parent's."""
    if process == os.getpid():
        with suppress(OSError):
            path.unlink()


def _bound(path: Path) -> socket.socket:
    """A socket that listens, after whatever a dead process left there is gone.

    Raises:
        OSError: It cannot be made, or somebody listens there.
    """
    if path.is_socket():
        with socket.socket(socket.AF_UNIX) as other:
            other.settimeout(_LOOK_S)
            if other.connect_ex(str(path)) == 0:
                msg = f"another process listens at {str(path)!r}"
                raise OSError(msg)
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    try:
        # Made under a name of its own, and moved when only its user may open it.
        made = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            made.unlink()
        listener.bind(str(made))
        made.chmod(0o600)
        listener.listen(_BACKLOG)
        listener.settimeout(_LOOK_S)
        made.rename(path)
    except OSError:
        listener.close()
        raise
    return listener


def _same_user(connection: socket.socket) -> bool:
    """Whether who connected is the user of this process, as far as the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    if user != os.getuid():
        logger.warning("control socket: user %d was refused", user)
        return False
    return True


def _line(connection: socket.socket, until: float) -> bytes | None:
    """One line, without its end; None if it is too long. What comes too slowly is cut off."""
    data = b""
    while b"\n" not in data:
        if len(data) > MOST_REQUEST:
            return None
        connection.settimeout(max(until - time.monotonic(), 0.001))
        try:
            piece = connection.recv(4096)
        except TimeoutError:
            break
        if not piece:
            break
        data += piece
    line = data.partition(b"\n")[0]
    return line if len(line) <= MOST_REQUEST else None
