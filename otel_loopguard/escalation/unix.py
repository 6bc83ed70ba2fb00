"""Unix sockets: requests as lines of JSON, from the same user only."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.errors import logger
from otel_loopguard._util.locks import lock_file, reset_after_fork, start_thread
from otel_loopguard._util.text import encoded, json_object
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.escalation import protocol

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.escalation.protocol import AdminHandlers, Message
    from otel_loopguard.settings import Settings

AUTO: Final = "auto"
_SUFFIX: Final = ".sock"
_LONGEST: Final = 100
"""Bytes that the path of a Unix socket may have: 108 on Linux, 104 elsewhere, with the end."""


class UntrustedPlaceError(OSError):
    """A folder for sockets belongs to another user, or others may write into it."""


class _TakenError(OSError):
    """Another process listens at the path, or may."""


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


def trusted_folder() -> Path:
    """The folder, into which no other user may write."""
    mine, place = user(), folder()
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UntrustedPlaceError(f"{str(place)!r} is no folder")
    if found.st_uid != mine:
        msg = f"folder {str(place)!r} belongs to user {found.st_uid}, not to {mine}"
        raise UntrustedPlaceError(msg)
    if found.st_mode & 0o077:
        msg = f"folder {str(place)!r} lets others in: mode {stat.S_IMODE(found.st_mode):o}, not 700"
        raise UntrustedPlaceError(msg)
    return place


def path_of(setting: str, number: int) -> Path:
    """The path of a process's socket."""
    user()
    if setting != AUTO:
        path = Path(setting)
    else:
        folder().mkdir(mode=0o700, exist_ok=True)
        path = trusted_folder() / f"{os.getpid()}-{number}{_SUFFIX}"
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(f"path of a socket has more than {_LONGEST} bytes: {str(path)!r}")
    return path


def sockets() -> list[Path]:
    """The sockets of all processes of this user that found their place themselves."""
    with suppress(FileNotFoundError):
        return sorted(trusted_folder().glob(f"*{_SUFFIX}"))
    return []


# Seconds between checks whether the guard is gone, and for a reply of a socket that may be dead.
_LOOK_S: Final = 0.5
# Seconds between attempts to take over another process's path: one that restarts ends in seconds.
_AGAIN_S: Final = 5.0
# Seconds between attempts to get what others hold for milliseconds: a lock, a descriptor, a place.
_REST_S: Final = 0.05
# A request is there at once, and a reply is taken at once: both are of this machine.
_LIMIT_S: Final = 2.0
"""Seconds that a request may take to come, and a reply to be taken."""
# Each has a thread for so long. More wait for one of them.
_MOST_CONNECTIONS: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")
_numbers: Final = iter(range(1, sys.maxsize))


class SocketServer:
    """Answers requests on a Unix socket that only its user may open (0600).

    One request and one reply a connection, of two seconds each; 64 are open at most, and further
    ones wait. What is no request is refused; what is too long is cut off. Where another process has
    the path, it takes it once that is gone. It ends with the guard, and removes its socket.
    """

    def __init__(self, settings: Settings, admin: AdminHandlers, faults: InternalErrors) -> None:
        self._setting = settings.control_socket
        self._admin = weakref.ref(admin)
        self._faults = faults
        self._ended = self._taken = False
        self._thread = BackgroundThread("socket", self._turn, faults, weak=False, suppress=False)
        self._listening: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._remove: weakref.finalize[[Path, int, tuple[int, int]], SocketServer] | None = None
        self.path: Path | None = None
        reset_after_fork(self)

    def start(self) -> None:
        """Starts the thread, which makes the socket: a file system may be slow."""
        self._thread.wake()

    def close(self) -> None:
        """Ends the thread, soon, and removes the socket at once."""
        self._ended = True
        self.path = None
        if self._remove is not None:
            self._remove()

    def forked(self) -> None:
        """Closes the child's copies after a fork; the parent goes on with its sockets."""
        self.path = self._remove = None
        for each in (*self._open, self._listening):
            if each is not None:
                each.close()
        self._listening = None

    def _turn(self) -> float | None:
        if self._listening is None and not self._ended:
            self._listen()
        listening = self._listening
        if listening is None and self._taken and not self._ended and self._admin() is not None:
            return _AGAIN_S
        if listening is None or self._ended or self._admin() is None:
            # Removed while it is still bound: its inode cannot be another socket's meanwhile.
            self.close()
            if listening is not None:
                listening.close()
            self._thread.stop()
            return None
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            return 0
        except OSError:
            return _REST_S  # there are no more descriptors, and that passes
        if not _is_own(connection) or not self._free.acquire(timeout=_LIMIT_S):
            connection.close()
        elif not start_thread("request", self._converse, connection):
            self._free.release()
            connection.close()
        return 0

    def _listen(self) -> None:
        try:
            path = path_of(self._setting, next(_numbers))
            self._listening = _bound(path)
            found = path.lstat()
        except (OSError, ValueError) as error:
            told, self._taken = self._taken, isinstance(error, _TakenError)
            if not (told and self._taken):
                logger.warning("control_socket = %r: cannot be served: %s", self._setting, error)
            return
        if self._taken:
            self._taken = False
            logger.info("control_socket = %r: is served now", self._setting)
        # At the end of the program too.
        place = found.st_dev, found.st_ino
        self._remove = weakref.finalize(self, _remove, path, os.getpid(), place)
        self.path = path
        if self._ended:
            self.close()

    def _converse(self, connection: socket.socket) -> None:
        """Answers one connection, on a thread of its own."""
        self._open.add(connection)
        try:
            with connection, suppress(OSError):
                request = _read_line(connection, protocol.MOST_REQUEST, _LIMIT_S)
                admin = self._admin()
                if admin is not None:
                    connection.settimeout(_LIMIT_S)
                    connection.sendall(admin.answer(request, self._faults) + b"\n")
        finally:
            self._open.discard(connection)
            self._free.release()


def _read_line(connection: socket.socket, most: int, limit_s: float) -> bytes:
    """Reads one line: all of it, or the part that came in time; just over `most` bytes at most."""
    until, line, piece = time.monotonic() + limit_s, bytearray(), b" "
    with suppress(OSError):
        while piece and b"\n" not in piece and len(line) <= most:
            if (left := until - time.monotonic()) <= 0:
                break
            connection.settimeout(left)
            piece = connection.recv(65_536)
            line += piece
    return bytes(line.partition(b"\n")[0])


def _is_own(connection: socket.socket) -> bool:
    """True if the peer is the user of this process, or the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, peer, _ = _CREDENTIALS.unpack(data)
    if peer != os.getuid():
        logger.warning("control socket: user %d was refused", peer)
    return peer == os.getuid()


def _remove(path: Path, process: int, place: tuple[int, int]) -> None:
    """Removes a socket, but neither a parent's nor one that another process put in its place.

    Args:
        path: Its path.
        process: Id of the process that made it.
        place: Device and inode that it had then.
    """
    if process == os.getpid():
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISSOCK(found.st_mode) and (found.st_dev, found.st_ino) == place:
                path.unlink()


def _bound(path: Path) -> socket.socket:
    """A socket that listens at a path, in place of one that a dead process of this user left."""
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _alone(path.parent):
            _make_room(path)
            with suppress(OSError):
                # On Linux this is the mode of what is bound, from the first moment.
                os.fchmod(listening.fileno(), 0o600)
            # Fails where anything is: nothing is ever replaced.
            listening.bind(str(path))
            if stat.S_IMODE(path.lstat().st_mode) != 0o600:
                path.chmod(0o600)
            # Between bind and listen it looks like a dead one.
            listening.listen(_MOST_CONNECTIONS)
    except BaseException:
        listening.close()
        raise
    listening.settimeout(_LOOK_S)
    return listening


def _make_room(path: Path) -> None:
    """Removes a dead socket of this user; raises `OSError` for anything else."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(f"{str(path)!r} is there, and is no socket: it is left as it is")
    if found.st_uid != user():
        raise OSError(f"socket {str(path)!r} belongs to user {found.st_uid}: it is left as it is")
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(_LOOK_S)
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            msg = f"socket {str(path)!r} may be in use, and is left as it is: {error}"
            raise _TakenError(msg) from None
    raise _TakenError(f"another process listens at {str(path)!r}")


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Lets one process at a time make its socket in a folder; waits for a second at most.

    Between bind and listen a socket looks like a dead one.
    """
    held = os.open(folder, os.O_RDONLY)
    try:
        lock_file(held, 2 * _LOOK_S)  # some file systems have no locks: then it goes without
        yield
    finally:
        os.close(held)


class SocketTransport(protocol.Transport):
    """Asks processes of this user on this machine.

    Args:
        path: The socket of the one process to ask; by default all that found their place
            themselves are asked.
        more: Sockets elsewhere that are asked then too, where they are there.
    """

    nobody = (
        "no process of this user was reached: agents are listed where they run with "
        "control_socket = auto (LOOPGUARD_CONTROL_SOCKET=auto), or share a store (--store)"
    )

    def __init__(self, path: str | None = None, *, more: Sequence[str] = ()) -> None:
        self._path = path
        self._more = more

    def replies(self, request: Message) -> list[Message]:
        """As of `Transport`."""
        replies = (_asked(path, request) for path in self._paths())
        return [reply for reply in replies if reply is not None]

    def _paths(self) -> list[Path]:
        """The sockets."""
        if self._path is not None:
            return [_own(Path(self._path))]
        more = [_own(Path(path)) for path in self._more if Path(path).is_socket()]
        try:
            return [*sockets(), *more]
        except OSError as error:
            raise LoopGuardError(str(error)) from None


def _asked(path: Path, request: Message) -> Message | None:
    """The reply of the process at a socket; None if that is gone."""
    until = time.monotonic() + protocol.REPLY_S
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(protocol.REPLY_S)
        try:
            _connect(connection, path, until)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise LoopGuardError(f"socket {str(path)!r}: {error}") from None
        with suppress(OSError):
            connection.sendall(encoded(request) + b"\n")
        data = _read_line(connection, protocol.MOST_REPLY, until - time.monotonic())
    silent = f"socket {str(path)!r}: the process there gave no reply"
    found = json_object(data, protocol.MOST_REPLY)
    return found or protocol.refusal(protocol.SILENT, silent)


def _connect(connection: socket.socket, path: Path, until: float) -> None:
    """Connects; tries again while too many wait, until the time limit."""
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            connection.connect(str(path))
            return
        time.sleep(_REST_S)
    connection.connect(str(path))


def _own(path: Path) -> Path:
    """Returns a path if it is a socket of this user."""
    if not path.is_socket():
        raise LoopGuardError(f"there is no socket {str(path)!r}")
    if path.stat().st_uid != user():
        raise LoopGuardError(f"socket {str(path)!r} belongs to another user")
    return path
