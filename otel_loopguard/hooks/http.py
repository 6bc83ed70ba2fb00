"""Hooks over HTTP, for an agent that calls an address instead of a program."""

from __future__ import annotations

import hmac
import socket
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.hooks.state import secret_of
from otel_loopguard.hooks.state_folder import GREETING, MODES, MOST_BYTES, NOTHING
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from otel_loopguard.hooks.events import Answering

_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_LIMIT_S: Final = 10.0
_MOST: Final = 64
_DIGITS: Final = 20
_PATH: Final = "/hook/"


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:4319`.

    Raises:
        LoopGuardSettingsError: It is none, or not one of this machine alone.
    """
    host, _, port = text.rpartition(":")
    if host.strip("[]") not in _HOSTS or not (port.isdigit() and int(port) < 65_536):
        msg = f"--http {text!r:.100}: expected 127.0.0.1:PORT"
        raise LoopGuardSettingsError(msg)
    return host.strip("[]"), int(port)


def serving(
    text: str,
) -> Callable[[Path, Answering], AbstractContextManager[None]]:
    """Answers at an address while the block runs.

    Raises:
        LoopGuardSettingsError: The address is none, or not one of this machine alone.
    """
    address = address_of(text)

    @contextmanager
    def serve(folder: Path, answer: Answering) -> Generator[None]:
        with HookHttpServer(address, secret_of(folder / "token"), answer) as server:
            Thread(target=server.serve_forever, name="loopguard-hook-http", daemon=True).start()
            try:
                yield
            finally:
                server.shutdown()

    return serve


class HookHttpServer(ThreadingHTTPServer):
    """Answers `POST /hook/AGENT?mode=enforce`, with the token as `Authorization: Bearer`.

    Every user of the machine can connect, so a connection that does not show the token within some
    seconds is closed, and so is one beyond 64.

    Args:
        address: Host and port.
        token: What a request has to carry.
        answer: Gives the answer to a request, as it stands on the socket, and a callback for when
            it is not delivered.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], token: str, answer: Answering) -> None:
        self.token = token
        self.answer = answer
        self._free = BoundedSemaphore(_MOST)
        self._since: dict[socket.socket, float] = {}
        super().__init__(address, _Handler)

    def known(self, connection: socket.socket) -> None:
        """A connection is new, or has just shown the token."""
        self._since[connection] = time.monotonic()

    def process_request(self, request: Any, client_address: Any) -> None:  # of the base
        """Has a connection answered on a thread of its own, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.known(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # of the base
        """Answers a connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended(request)

    def service_actions(self) -> None:  # of the base
        """Closes connections that took too long; called about twice a second."""
        late = time.monotonic() - _LIMIT_S
        for connection, since in tuple(self._since.items()):
            if since < late:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # of the base
        """Says nothing of a client that went away."""

    def _ended(self, request: Any) -> None:
        self._since.pop(request, None)
        self._free.release()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_S
    server: HookHttpServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:  # of the base
        """Answers an event."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._refuse(401)
            return
        self.server.known(self.connection)
        size = self.headers.get("Content-Length", "")
        if not size.isascii() or not size.isdigit():
            self._refuse(411)
            return
        if len(size) > _DIGITS or int(size) > MOST_BYTES:
            self._refuse(413)
            return
        payload = self.rfile.read(int(size))
        place = urlsplit(self.path)
        agent = place.path.removeprefix(_PATH)
        mode = parse_qs(place.query).get("mode", ["observe"])[0]
        known = agent.replace("-", "").isalnum() and mode in MODES
        if not place.path.startswith(_PATH) or not known:
            self._reply(404)
            return
        header = f"{GREETING} {__version__} {agent} {mode}\n"
        answer, undelivered = self.server.answer(header.encode() + payload)
        try:
            self._reply(200, answer)
        except OSError:
            self.close_connection = True
            if undelivered is not None:
                undelivered()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # of the base
        """Says nothing: a request may hold anything."""

    def _refuse(self, status: int) -> None:
        """Answers without reading the body: nothing after it can be understood."""
        self.close_connection = True
        self._reply(status)

    def _reply(self, status: int, body: bytes = NOTHING) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
