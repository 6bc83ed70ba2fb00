"""The Unix socket of a process: requests as lines of JSON, from the same user only."""

from __future__ import annotations

import os
import selectors
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.errors import swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import Signal, new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.escalation.admin.handlers import (
    MOST_REPLY,
    MOST_REQUEST,
    Message,
    decoded,
    refusal,
)
from otel_loopguard.escalation.payload import encoded

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.escalation.admin.handlers import AdminHandlers
    from otel_loopguard.escalation.admin.redis_transport import RedisTransport
    from otel_loopguard.settings import Settings

AUTO: Final = "auto"
_SUFFIX: Final = ".sock"
_LONGEST: Final = 100
"""Bytes that the path of a Unix socket may have: 108 on Linux, 104 elsewhere, with the end."""


class UntrustedPlaceError(OSError):
    """A folder for sockets belongs to somebody else, or others may write into it."""


def user() -> int:
    """Number of the user of this process."""
    if not hasattr(os, "getuid"):
        msg = "this system has no sockets that only one user may open: use a store"
        raise UntrustedPlaceError(msg)
    return os.getuid()


def folder() -> Path:
    """The folder of the sockets that find their place themselves: `auto`.

    Below `XDG_RUNTIME_DIR`, else one with the user's number below the folder for temporary files.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "otel-loopguard"
    return Path(tempfile.gettempdir()) / f"otel-loopguard-{user()}"


def trusted_folder(*, make: bool) -> Path | None:
    """The folder, once it is sure that nobody else may write into it."""
    mine = user()
    place = folder()
    if make:
        place.mkdir(mode=0o700, parents=False, exist_ok=True)
    try:
        found = place.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode):
        msg = f"{str(place)!r} is no folder"
        raise UntrustedPlaceError(msg)
    if found.st_uid != mine:
        msg = f"folder {str(place)!r} belongs to user {found.st_uid}, not to {mine}"
        raise UntrustedPlaceError(msg)
    if found.st_mode & 0o077:
        msg = f"folder {str(place)!r} lets others in: mode {stat.S_IMODE(found.st_mode):o}, not 700"
        raise UntrustedPlaceError(msg)
    return place


def path_of(setting: str, number: int) -> Path:
    """Where a process puts its socket."""
    user()
    if setting != AUTO:
        path = Path(setting)
    else:
        place = trusted_folder(make=True)
        if place is None:
            raise FileNotFoundError(str(folder()))
        path = place / f"{os.getpid()}-{number}{_SUFFIX}"
    if len(os.fsencode(path)) > _LONGEST:
        msg = f"path of a socket has more than {_LONGEST} bytes: {str(path)!r}"
        raise OSError(msg)
    return path


def sockets() -> list[Path]:
    """The sockets of all processes of this user that found their place themselves."""
    place = trusted_folder(make=False)
    return [] if place is None else sorted(place.glob(f"*{_SUFFIX}"))


_BACKLOG: Final = 64
_LOOK_S: Final = 0.5
_LIMIT_S: Final = 2.0
"""Seconds that one connection may take in all."""
_MOST_LINES: Final = 16
_PIECE: Final = 65_536
_REST_S: Final = 0.05
_CREDENTIALS: Final = struct.Struct("3i")
_numbers: Final = iter(range(1, sys.maxsize))


class _Line:
    """One connection: what came of a request, and what is left of the reply.

    Attributes:
        socket: The connection; it never blocks.
        until: When it is cut off, seconds of the monotonic clock.
        request: What came.
        reply: What is still to be sent; None before the request is whole.
    """

    __slots__ = ("reply", "request", "socket", "until")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.until = time.monotonic() + _LIMIT_S
        self.request = bytearray()
        self.reply: memoryview | None = None


class Server:
    """Serves a desk on a Unix socket that only its user may open (0600), on one daemon thread.

    One request and one reply a connection, two seconds each at most. Sixteen are open at most:
    then the oldest that has not said what it wants makes room, so that who is slow shuts out
    nobody. What is no request is refused; what is too long is cut off. It ends with the desk, and
    takes its socket away.

    Attributes:
        path: Where the socket is; None before it is made, and if it cannot be, which is logged.
    """

    def __init__(self, setting: str, desk: AdminHandlers, faults: InternalErrors) -> None:
        self._setting = setting
        self._desk = weakref.ref(desk)
        self._faults = faults
        self._listener: socket.socket | None = None
        self._lines: list[_Line] = []
        self._made: _Made | None = None
        self._ended = Signal()
        self.path: Path | None = None
        reset_after_fork(self)

    def start(self) -> None:
        """Starts the thread, which makes the socket: a file system may be slow."""
        try:
            threading.Thread(target=self._run, name="loopguard-socket", daemon=True).start()
        except RuntimeError as fault:
            self._faults.note("desk", fault)

    def close(self) -> None:
        """Ends the thread, and takes the socket away at once."""
        self._ended.set()
        self.path = None
        made, self._made = self._made, None
        if made is not None:
            _removed(made)

    def forked(self) -> None:
        """In the child of a fork: the socket is the parent's."""
        self.path = self._made = None
        listener, self._listener = self._listener, None
        lines, self._lines = self._lines, []
        if listener is not None:
            listener.close()
        for line in lines:
            line.socket.close()

    def _run(self) -> None:
        with swallow(self._faults, "desk"):
            self._open()
        listener = self._listener
        while listener is not None and not self._ended.is_set() and self._desk() is not None:
            well = False
            with swallow(self._faults, "desk"):
                well = self._turn(listener)
            if not well:
                self._ended.wait(_REST_S)
        self._clear()

    def _open(self) -> None:
        try:
            path = path_of(self._setting, next(_numbers))
            self._listener, made = _bound(path)
        except (OSError, ValueError) as error:
            logger.warning("control_socket = %r: cannot be served: %s", self._setting, error)
            return
        # At the end of the program too, if nobody closes it.
        weakref.finalize(self, _removed, made)
        self._made, self.path = made, path
        if self._ended.is_set():
            self.close()

    def _clear(self) -> None:
        # Taken away while it is still bound: nobody else can have its number meanwhile.
        self.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        for line in self._lines:
            line.socket.close()
        self._lines.clear()

    def _turn(self, listener: socket.socket) -> bool:
        """Waits for whoever can go on, at most for half a second, and serves them."""
        # Needs no descriptor of its own, as the default one does.
        with selectors.PollSelector() as ready:
            ready.register(listener, selectors.EVENT_READ)
            for line in self._lines:
                wanted = selectors.EVENT_READ if line.reply is None else selectors.EVENT_WRITE
                ready.register(line.socket, wanted, line)
            now = time.monotonic()
            soonest = min((line.until for line in self._lines), default=now + _LOOK_S)
            found = ready.select(min(max(soonest - now, 0.0), _LOOK_S))
        for key, _ in found:
            line = key.data
            if isinstance(line, _Line):
                goes_on = False
                with swallow(self._faults, "desk"), suppress(OSError):
                    goes_on = self._serve(line)
                if not goes_on:
                    self._drop(line)
        for line in [line for line in self._lines if line.until <= time.monotonic()]:
            self._late(line)
        try:
            # Not more, so that whoever is let in is heard before others take the place.
            for _ in range(_MOST_LINES // 2 if any(key.data is None for key, _ in found) else 0):
                self._let_in(listener)
        except BlockingIOError:
            return True
        except OSError:
            # There are no more descriptors, and that passes.
            return False
        return True

    def _let_in(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        if not _same_user(connection):
            connection.close()
            return
        if len(self._lines) >= _MOST_LINES:
            waiting = [line for line in self._lines if line.reply is None]
            self._drop((waiting or self._lines)[0])
        self._lines.append(_Line(connection))

    def _drop(self, line: _Line) -> None:
        self._lines.remove(line)
        line.socket.close()

    def _late(self, line: _Line) -> None:
        """Cuts a connection off; what came of a request is answered, if that goes at once."""
        with swallow(self._faults, "desk"), suppress(OSError):
            if line.reply is None:
                self._answer(line)
                self._serve(line)
        self._drop(line)

    def _serve(self, line: _Line) -> bool:
        """Reads or writes what can be without waiting; False when the connection is done."""
        if line.reply is None:
            piece = line.socket.recv(_PIECE)
            line.request += piece
            if piece and b"\n" not in piece and len(line.request) <= MOST_REQUEST:
                return True
            self._answer(line)
        if line.reply:
            with suppress(BlockingIOError):
                line.reply = line.reply[line.socket.send(line.reply) :]
        return bool(line.reply)

    def _answer(self, line: _Line) -> None:
        asked = bytes(line.request).partition(b"\n")[0]
        line.request.clear()
        data = encoded(self._reply(asked if len(asked) <= MOST_REQUEST else None))
        if len(data) > MOST_REPLY:
            data = encoded(refusal("too_large", "the reply is too large"))
        line.reply = memoryview(data + b"\n")

    def _reply(self, line: bytes | None) -> Message:
        if line is None:
            return refusal("too_long", f"a request has at most {MOST_REQUEST} bytes")
        request = decoded(line, MOST_REQUEST)
        desk = self._desk()
        if request is None or desk is None:
            return refusal("unknown_request", "a request is one JSON object on one line")
        return desk.reply(request)


class _Made(NamedTuple):
    """A socket that this process made.

    Attributes:
        path: Where.
        process: Number of the process.
        number: Device and inode.
    """

    path: Path
    process: int
    number: tuple[int, int]


def _removed(made: _Made) -> None:
    """Takes a socket away, but not a parent's, nor what somebody else put in its place."""
    if made.process == os.getpid():
        with suppress(OSError):
            found = made.path.lstat()
            if stat.S_ISSOCK(found.st_mode) and (found.st_dev, found.st_ino) == made.number:
                made.path.unlink()


def _bound(path: Path) -> tuple[socket.socket, _Made]:
    """A socket that listens, after one that a dead process of this user left there is gone."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _alone(path.parent):
            _make_room(path)
            with suppress(OSError):
                # On Linux this is the mode of what is bound, from the first moment.
                os.fchmod(listener.fileno(), 0o600)
            # Fails where anything is: nothing is ever replaced.
            listener.bind(str(path))
            if stat.S_IMODE(path.lstat().st_mode) != 0o600:
                path.chmod(0o600)
            listener.listen(_BACKLOG)
        listener.setblocking(False)
        found = path.lstat()
    except OSError:
        listener.close()
        raise
    return listener, _Made(path, os.getpid(), (found.st_dev, found.st_ino))


def _make_room(path: Path) -> None:
    """Takes away a socket of this user that nobody listens at."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        msg = f"{str(path)!r} is there, and is no socket: it is left as it is"
        raise OSError(msg)
    if found.st_uid != user():
        msg = f"socket {str(path)!r} belongs to user {found.st_uid}: it is left as it is"
        raise OSError(msg)
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(_LOOK_S)
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            msg = f"socket {str(path)!r} may be in use, and is left as it is: {error}"
            raise OSError(msg) from None
    msg = f"another process listens at {str(path)!r}"
    raise OSError(msg)


@contextmanager
def _alone(folder: Path) -> Generator[None, None, None]:
    """Lets one process at a time make its socket in a folder; waits for a second at most.

    Between bind and listen a socket looks like a dead one.
    """
    import fcntl  # noqa: PLC0415  # not everywhere; where it is missing no socket is made

    held = os.open(folder, os.O_RDONLY)
    until = time.monotonic() + 2 * _LOOK_S
    try:
        # Some file systems have no locks: then it goes without.
        with suppress(OSError):
            while time.monotonic() < until:
                with suppress(BlockingIOError):
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_REST_S)
        yield
    finally:
        os.close(held)


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


class Listeners:
    """Opens what the settings name, once: `store_url`, `control_socket`.

    Attributes:
        closed: Whether nothing is open yet, and there is something to open.
        server: The socket; None without one.
    """

    def __init__(self, settings: Settings, desk: AdminHandlers, faults: InternalErrors) -> None:
        self._settings = settings
        self._desk = desk
        self._faults = faults
        self._opening = new_lock()
        self._letterbox: RedisTransport | None = None
        self.server: Server | None = None
        self.closed = bool(settings.store_url or settings.control_socket)

    def open(self) -> None:
        """Opens them, if they are not open. Starts threads; waits for nothing but a local file."""
        with self._opening:
            if not self.closed:
                return
            self.closed = False
            settings = self._settings
            if settings.store_url:
                self._open_letterbox()
            if settings.control_socket:
                # A program that nobody looks into has no sockets.

                self.server = Server(settings.control_socket, self._desk, self._faults)
                self.server.start()

    def close(self) -> None:
        """Closes them. They may be opened again."""
        with self._opening:
            if self._letterbox is not None:
                self._letterbox.close()
            if self.server is not None:
                self.server.close()
            self._letterbox = self.server = None
            self.closed = bool(self._settings.store_url or self._settings.control_socket)

    def _open_letterbox(self) -> None:
        from otel_loopguard.escalation.admin.redis_transport import (  # noqa: PLC0415  # redis is an extra
            ProcessRegistry,
            RedisTransport,
        )

        directory = ProcessRegistry(self._settings)
        self._letterbox = RedisTransport(self._settings, self._desk, directory, self._faults)
        self._letterbox.start()
