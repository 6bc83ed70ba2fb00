"""Asks live processes from outside: over their sockets, or over the store."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._util.text import encoded
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.escalation.admin.protocol import (
    MOST_REPLY,
    Message,
    decoded,
    is_unknown,
    refusal,
)
from otel_loopguard.escalation.admin.unix import sockets, user
from otel_loopguard.stores import open_store

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

# A process whose interpreter is busy for longer has other troubles; people wait for this.
_LIMIT_S: Final = 5.0
_SILENT: Final = "no_reply"


class Transport(ABC):
    """Asks live processes."""

    nobody: str
    """What to say where no process is reached."""

    @abstractmethod
    def replies(self, request: Message) -> list[Message]:
        """The replies of all processes to a request; a refusal for those that gave none in time."""

    def ask(self, request: Message) -> list[Message]:
        """The replies of the processes that know what a request is about.

        Raises:
            LoopGuardError: None does, and one that might gave no reply.
        """
        known = [reply for reply in self.replies(request) if not is_unknown(reply)]
        heard = [reply for reply in known if reply.get("error") != _SILENT]
        if known and not heard:
            raise LoopGuardError(known[0]["message"])
        return heard

    def sessions(self) -> tuple[list[Message], str]:
        """The rows of the sessions of all processes, and what to say where some are missing."""
        replies = self.replies({"op": "sessions"})
        rows = [row for reply in replies for row in _rows(reply)]
        silent = [reply["message"] for reply in replies if reply.get("error") == _SILENT]
        if silent or rows:
            return rows, "; ".join(silent)
        if not replies:
            return rows, self.nobody
        who = "1 process was reached, and it has"
        if len(replies) > 1:
            who = f"{len(replies)} processes were reached, and they have"
        return rows, f"{who} no session now; one begins with the first tool, model or agent span"


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


class StoreTransport(Transport):
    """Asks all processes that share a store."""

    nobody = (
        "no process is registered in this store: agents are listed where they run with the same "
        "store_url (LOOPGUARD_STORE_URL) and store_prefix"
    )

    def __init__(self, settings: Settings) -> None:
        open_store(settings)  # says what is wrong with the address, or missing
        from otel_loopguard.escalation.admin.mailbox import Mailboxes  # noqa: PLC0415  # redis is an extra

        self._mailboxes = Mailboxes(settings)

    def replies(self, request: Message) -> list[Message]:
        """As of `Transport`."""
        replies, asked = self._mailboxes.ask(request, _LIMIT_S)
        lacking = asked - len(replies)
        who = f"{lacking} of {asked} processes gave no reply within {_LIMIT_S:g} s"
        return [*replies, *([refusal(_SILENT, who)] if lacking else ())]


def _asked(path: Path, request: Message) -> Message | None:
    """The reply of the process at a socket; None if that is gone."""
    until, data = time.monotonic() + _LIMIT_S, bytearray()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LIMIT_S)
        try:
            _connect(connection, path, until)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            msg = f"socket {str(path)!r}: {error}"
            raise LoopGuardError(msg) from None
        with suppress(OSError):
            connection.sendall(encoded(request) + b"\n")
            while len(data) <= MOST_REPLY and (left := until - time.monotonic()) > 0:
                connection.settimeout(left)
                piece = connection.recv(65_536)
                if not piece:
                    break
                data += piece
    silent = refusal(_SILENT, f"socket {str(path)!r}: the process there gave no reply")
    return decoded(bytes(data), MOST_REPLY) or silent


def _connect(connection: socket.socket, path: Path, until: float) -> None:
    """Connects; tries again while too many wait, until the time limit."""
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            connection.connect(str(path))
            return
        time.sleep(0.05)
    connection.connect(str(path))


def _own(path: Path) -> Path:
    """Returns a path if it is a socket of this user."""
    if not path.is_socket():
        msg = f"there is no socket {str(path)!r}"
        raise LoopGuardError(msg)
    if path.stat().st_uid != user():
        msg = f"socket {str(path)!r} belongs to another user"
        raise LoopGuardError(msg)
    return path


def _rows(reply: Message) -> list[Message]:
    found: Any = reply.get("sessions")
    return [row for row in found if _is_row(row)] if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]


def _is_row(row: Any) -> bool:
    """True for a row of a session."""
    if not isinstance(row, dict):
        return False
    return all(isinstance(row.get(name), str) for name in ("session", "process", "action"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
