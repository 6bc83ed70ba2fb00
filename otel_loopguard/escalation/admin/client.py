"""Asks live processes from outside: over their sockets, or over the store."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.errors import LoopGuardError
from otel_loopguard.escalation.admin.handlers import MOST_REPLY, Message, decoded
from otel_loopguard.escalation.admin.socket import sockets, user
from otel_loopguard.escalation.channels import KIND
from otel_loopguard.escalation.payload import encoded
from otel_loopguard.stores import open_store

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LIMIT_S: Final = 5.0
_UNKNOWN: Final = frozenset({"unknown_session", "unknown_escalation"})


class Transport(ABC):
    """A way to the processes that can be asked."""

    nobody: str
    """What to do where no process is reached."""

    @abstractmethod
    def sessions(self) -> list[Message]:
        """Rows of all sessions of all processes, see `handlers.session_row`."""

    @abstractmethod
    def ask(self, request: Message) -> list[Message]:
        """Replies of the processes that know the `session` or `escalation` of a request."""

    @abstractmethod
    def reached(self) -> int:
        """How many processes can be asked."""

    def why_empty(self) -> str:
        """Why no session is listed: nobody is reached, or nobody has one; and what to do."""
        reached = self.reached()
        if not reached:
            return self.nobody
        who = "1 process was reached, and it has"
        if reached > 1:
            who = f"{reached} processes were reached, and they have"
        return f"{who} no session now; one begins with the first tool, model or agent span"


class SocketTransport(Transport):
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

    def sessions(self) -> list[Message]:
        """As of `Transport`."""
        replies = (self._asked(path, {"op": "sessions"}) for path in self._paths())
        return [row for reply in replies if reply for row in _rows(reply)]

    def ask(self, request: Message) -> list[Message]:
        """As of `Transport`."""
        replies = (self._asked(path, request) for path in self._paths())
        return [reply for reply in replies if reply and reply.get("error") not in _UNKNOWN]

    def reached(self) -> int:
        """As of `Transport`."""
        replies = (self._asked(path, {"op": "sessions"}) for path in self._paths())
        return sum(reply is not None for reply in replies)

    def _paths(self) -> list[Path]:
        """The sockets."""
        if self._path is None:
            more = [_own(Path(path)) for path in self._more if Path(path).is_socket()]
            try:
                return [*sockets(), *more]
            except OSError as error:
                raise LoopGuardError(str(error)) from None
        return [_own(Path(self._path))]

    def _asked(self, path: Path, request: Message) -> Message | None:
        """The reply of one process; None if nobody is there any more."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_LIMIT_S)
            try:
                _connect(connection, path)
            except (FileNotFoundError, ConnectionRefusedError):
                return None
            except OSError as error:
                msg = f"socket {str(path)!r}: {error}"
                raise LoopGuardError(msg) from None
            with suppress(OSError):
                connection.sendall(encoded(request) + b"\n")
            reply = decoded(_all(connection), MOST_REPLY)
        if reply is None:
            msg = f"socket {str(path)!r}: the process there gave no reply"
            raise LoopGuardError(msg)
        return reply


class StoreTransport(Transport):
    """Asks all processes that register their sessions in a store."""

    nobody = (
        "no process is registered in this store: agents are listed where they run with the same "
        "store_url (LOOPGUARD_STORE_URL) and store_prefix"
    )

    def __init__(self, settings: Settings) -> None:
        self._store = open_store(settings)
        from otel_loopguard.escalation.admin.redis_transport import ProcessRegistry  # noqa: PLC0415  # redis is an extra

        self._registry = ProcessRegistry(settings)

    def sessions(self) -> list[Message]:
        """As of `Transport`."""
        return [row for row in self._registry.sessions() if _is_row(row)]

    def ask(self, request: Message) -> list[Message]:
        """As of `Transport`."""
        replies: list[Message] = []
        for process in self._who(request):
            reply = self._registry.ask(process, request, _LIMIT_S)
            if reply is None:
                msg = f"process {process!r} gave no reply within {_LIMIT_S:g} s"
                raise LoopGuardError(msg)
            if reply.get("error") not in _UNKNOWN:
                replies.append(reply)
        return replies

    def reached(self) -> int:
        """As of `Transport`."""
        return len(self._registry.processes())

    def _who(self, request: Message) -> list[str]:
        """The processes that have the session, or the escalation, that a request is about."""
        escalation, session = request.get("escalation"), request.get("session")
        rows = self.sessions()
        if escalation is None:
            return sorted({row["process"] for row in rows if row["session"] == session})
        kept = self._store.get(KIND, str(escalation))
        package = None if kept is None else decoded(kept, MOST_REPLY)
        place = None if package is None else package.get("process")
        has = {row["process"] for row in rows if row.get("escalation") == escalation}
        return sorted(has | {name for name in self._registry.processes() if name == place})


def _own(path: Path) -> Path:
    """Returns a path if it is a socket of this user."""
    if not path.is_socket():
        msg = f"there is no socket {str(path)!r}"
        raise LoopGuardError(msg)
    if path.stat().st_uid != user():
        msg = f"socket {str(path)!r} belongs to another user"
        raise LoopGuardError(msg)
    return path


def _rows(reply: Message) -> Iterable[Message]:
    found: Any = reply.get("sessions")
    return [row for row in found if _is_row(row)] if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]


def _is_row(row: Any) -> bool:
    """Whether something has what a row of a session must have."""
    if not isinstance(row, dict):
        return False
    return all(isinstance(row.get(name), str) for name in ("session", "process", "action"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _connect(connection: socket.socket, path: Path) -> None:
    """Connects; retries until the time limit while too many wait."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            connection.connect(str(path))
            return
        time.sleep(0.05)
    connection.connect(str(path))


def _all(connection: socket.socket) -> bytes:
    """Reads a reply to its end, within the limits of time and size."""
    until = time.monotonic() + _LIMIT_S
    data = bytearray()
    with suppress(OSError):
        while len(data) <= MOST_REPLY and time.monotonic() < until:
            piece = connection.recv(65_536)
            if not piece:
                break
            data += piece
    return bytes(data)
