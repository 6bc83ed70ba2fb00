"""Hooks over HTTP, for an agent that can call an address in place of a program."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.hooks.state_folder import GREETING, MOST_BYTES, NOTHING
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_LIMIT_S: Final = 10.0
_PATH: Final = "/hook/"


def token_of(folder: Path) -> str:
    """The token that a request has to carry; made on first use, for this user's eyes only."""
    path = folder / "token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as stream:  # noqa: PTH123  # a descriptor
            stream.write(f"{secrets.token_urlsafe(32)}\n")
    return path.read_text("ascii").strip()


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
) -> Callable[[Path, Callable[[bytes], bytes]], AbstractContextManager[None]]:
    """What answers at an address while the block runs.

    Raises:
        LoopGuardSettingsError: The address is none, or not one of this machine alone.
    """
    address = address_of(text)

    @contextmanager
    def serve(folder: Path, answer: Callable[[bytes], bytes]) -> Generator[None]:
        with HookHttpServer(address, token_of(folder), answer) as server:
            Thread(target=server.serve_forever, name="loopguard-hook-http", daemon=True).start()
            try:
                yield
            finally:
                server.shutdown()

    return serve


class HookHttpServer(ThreadingHTTPServer):
    """Answers `POST /hook/AGENT?mode=enforce`, with the token as `Authorization: Bearer`.

    Args:
        address: Host and port.
        token: What a request has to carry.
        answer: Gives the answer to a request, as it stands on the socket.
    """

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], token: str, answer: Callable[[bytes], bytes]
    ) -> None:
        self.token = token
        self.answer = answer
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _LIMIT_S
    server: HookHttpServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:  # of the base
        """Answers an event."""
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MOST_BYTES:
            self.close_connection = True
            self._reply(413 if size.isdigit() else 411)
            return
        payload = self.rfile.read(int(size))
        given = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._reply(401)
            return
        place = urlsplit(self.path)
        agent = place.path.removeprefix(_PATH)
        if not place.path.startswith(_PATH) or not agent.replace("-", "").isalnum():
            self._reply(404)
            return
        mode = parse_qs(place.query).get("mode", ["observe"])[0]
        header = f"{GREETING} {__version__} {agent} {mode}\n"
        self._reply(200, self.server.answer(header.encode() + payload))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # of the base
        """Says nothing: a request may hold anything."""

    def _reply(self, status: int, body: bytes = NOTHING) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
