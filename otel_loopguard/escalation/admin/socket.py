"""The Unix socket of a process: requests as lines of JSON, from the same user only."""

from __future__ import annotations

import os
import socket
import socketserver
import stat
import struct
import sys
import tempfile
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from otel_loopguard._util.locks import reset_after_fork
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.escalation.admin.handlers import MOST_REQUEST

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.escalation.admin.handlers import AdminHandlers

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
_MOST_CONNECTIONS: Final = 16
_REST_S: Final = 0.05
_CREDENTIALS: Final = struct.Struct("3i")
_numbers: Final = iter(range(1, sys.maxsize))

if TYPE_CHECKING:
    from socketserver import ThreadingUnixStreamServer as _Base
else:  # there is none on Windows, where `user` refuses before
    _Base = getattr(socketserver, "ThreadingUnixStreamServer", socketserver.ThreadingTCPServer)


class _Handler(socketserver.StreamRequestHandler):
    """Reads one request and writes one reply, on its own thread."""

    timeout = _LIMIT_S

    def handle(self) -> None:
        server = cast("_SocketServer", self.server)
        # Also after a cut or a time-out, answer what arrived of the request.
        line = b""
        with suppress(OSError):
            while b"\n" not in line and len(line) <= MOST_REQUEST:
                piece = self.request.recv(MOST_REQUEST + 1)
                if not piece:
                    break
                line += piece
        server.request_is_whole(self.request)
        with suppress(OSError):
            self.wfile.write(server.reply(line.partition(b"\n")[0]))


class _SocketServer(_Base):
    """Bounds the connections: how many, and how long; of the same user only."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    def __init__(
        self, path: Path, admin: weakref.ref[AdminHandlers], faults: InternalErrors
    ) -> None:
        self._path = path
        self._admin = admin
        self._faults = faults
        # Each connection, until when it is open, and whether its request is whole; oldest first.
        self._open: dict[socket.socket, tuple[float, bool]] = {}
        super().__init__(str(path), _Handler)

    def server_bind(self) -> None:
        """Binds and listens, after a socket that a dead process of this user left is gone."""
        with _alone(self._path.parent):
            _make_room(self._path)
            with suppress(OSError):
                # On Linux this is the mode of what is bound, from the first moment.
                os.fchmod(self.socket.fileno(), 0o600)
            # Fails where anything is: nothing is ever replaced.
            super().server_bind()
            if stat.S_IMODE(self._path.lstat().st_mode) != 0o600:
                self._path.chmod(0o600)
            # Between bind and listen it looks like a dead one.
            super().server_activate()

    def server_activate(self) -> None:
        """Done by `server_bind`."""

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # There are no more descriptors, and that passes.
            time.sleep(_REST_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the peer is the user of this process, as far as the system reports it."""
        del client_address
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        data = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, peer, _ = _CREDENTIALS.unpack(data)
        if peer != os.getuid():
            logger.warning("control socket: user %d was refused", peer)
        return peer == os.getuid()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Makes room for a connection: the oldest without a whole request is closed."""
        known = list(self._open.items())
        if len(known) >= _MOST_CONNECTIONS:
            waiting = [one for one, (_, whole) in known if not whole]
            self._cut((waiting or [known[0][0]])[0], socket.SHUT_RDWR)
        self._open[request] = (time.monotonic() + _LIMIT_S, False)
        super().process_request(request, client_address)

    def request_is_whole(self, request: Any) -> None:
        """The request of a connection is whole."""
        if request in self._open:
            self._open[request] = (self._open[request][0], True)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Counts a fault; the default prints it."""
        del request, client_address
        fault = sys.exc_info()[1]
        if fault is not None:
            self._faults.note("admin", fault)

    def cut_late(self) -> None:
        """Cuts off connections whose time is over; first what they send, then all."""
        now = time.monotonic()
        for request, (until, whole) in list(self._open.items()):
            if until <= now:
                self._cut(request, socket.SHUT_RDWR if whole else socket.SHUT_RD)

    @property
    def any_open(self) -> bool:
        """Whether there is a connection."""
        return bool(self._open)

    def close_all(self, *, forked: bool = False) -> None:
        """Closes the socket and all connections; after a fork the parent's go on."""
        self.server_close()
        for request in list(self._open):
            if forked:
                request.close()
            else:
                self._cut(request, socket.SHUT_RDWR)

    def _cut(self, request: socket.socket, how: int) -> None:
        if how == socket.SHUT_RDWR:
            self._open.pop(request, None)
        with suppress(OSError):
            request.shutdown(how)

    def reply(self, line: bytes) -> bytes:
        """The reply to a request."""
        admin = self._admin()
        return b"" if admin is None else admin.answer(line, self._faults) + b"\n"


class Server:
    """Serves the admin API on a Unix socket that only its user may open (0600).

    One request and one reply a connection, within two seconds. Sixteen are open at most: then the
    oldest that has not sent its request makes room, so that a slow one shuts out nobody. What is no
    request is refused; what is too long is cut off. It ends with the guard, and removes its socket.
    """

    def __init__(self, setting: str, admin: AdminHandlers, faults: InternalErrors) -> None:
        self._setting = setting
        self._admin = weakref.ref(admin)
        self._faults = faults
        self._server: _SocketServer | None = None
        self._made: _Made | None = None
        self._ended = False
        self._thread = BackgroundThread("socket", self._turn, faults, weak=False, suppress=False)
        self.path: Path | None = None
        reset_after_fork(self)

    def start(self) -> None:
        """Starts the thread, which makes the socket: a file system may be slow."""
        self._thread.wake()

    def close(self) -> None:
        """Ends the thread, soon, and removes the socket at once."""
        self._ended = True
        self.path = None
        made, self._made = self._made, None
        if made is not None:
            _remove(made)

    def forked(self) -> None:
        """In the child of a fork: the socket is the parent's."""
        self.path = self._made = None
        server, self._server = self._server, None
        if server is not None:
            server.close_all(forked=True)

    def _turn(self) -> float | None:
        if self._server is None and not self._ended:
            self._open()
        server = self._server
        if server is not None and not self._ended and self._admin() is not None:
            server.timeout = _LOOK_S if not server.any_open else _REST_S
            server.handle_request()
            server.cut_late()
            return 0
        # Removed while it is still bound: nobody else can have its number meanwhile.
        self.close()
        self._server = None
        if server is not None:
            server.close_all()
        self._thread.stop()
        return None

    def _open(self) -> None:
        try:
            path = path_of(self._setting, next(_numbers))
            self._server = _SocketServer(path, self._admin, self._faults)
            found = path.lstat()
        except (OSError, ValueError) as error:
            logger.warning("control_socket = %r: cannot be served: %s", self._setting, error)
            return
        made = _Made(path, os.getpid(), (found.st_dev, found.st_ino))
        # At the end of the program too, if nobody closes it.
        weakref.finalize(self, _remove, made)
        self._made, self.path = made, path
        if self._ended:
            self.close()


class _Made(NamedTuple):
    """A socket that this process made."""

    path: Path
    process: int
    number: tuple[int, int]  # device and inode


def _remove(made: _Made) -> None:
    """Removes a socket, but neither a parent's nor one that another process put in its place."""
    if made.process == os.getpid():
        with suppress(OSError):
            found = made.path.lstat()
            if stat.S_ISSOCK(found.st_mode) and (found.st_dev, found.st_ino) == made.number:
                made.path.unlink()


def _make_room(path: Path) -> None:
    """Removes a socket of this user that nobody listens on."""
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
