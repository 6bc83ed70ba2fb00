"""Sends JSON over HTTP from background threads. Needs httpx, which is an extra."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from otel_loopguard._util.errors import logger
from otel_loopguard._util.locks import Signal, new_lock, reset_after_fork
from otel_loopguard._util.worker import DeliveryError
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

_HEADERS: Final = {
    "content-type": "application/json",
    # A reply that is packed all the same is not unpacked: it may be a bomb.
    "accept-encoding": "identity",
    "user-agent": f"otel-loopguard/{__version__}",
}


class Endpoint:
    """An address that JSON is sent to. A connection lasts for one request: requests are rare.

    Redirections are not followed. No log and no span shows path, query or password.

    Args:
        url: The address.
        limit_s: Seconds that a request may take, until its reply is read.

    Raises:
        ValueError: The address cannot be used; the message does not show it.
    """

    def __init__(self, url: str, limit_s: float) -> None:
        found = None
        with suppress(ValueError, httpx.InvalidURL):
            parts = urlsplit(url.strip())
            if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
                found = _Address(url.strip())
        if found is None or not found.host:
            raise ValueError("expected http://HOST/… or https://HOST/…")
        self._url = found
        self.host = found.host  # for logs
        self._limit_s = limit_s
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Resets TLS in the child of a fork."""
        # Made by the first request, for it takes longer than a request.
        self._tls: Any = None

    def send(  # noqa: PLR0913
        self, method: str, content: bytes | None, headers: Mapping[str, str], *, most: int,
        path: str = "", query: Mapping[str, str | int] | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Status of the reply, and its body if that is 2xx: `most` bytes at most. Blocks.

        Raises:
            DeliveryError: There was no reply.
        """
        url = self._url
        if path:
            more: dict[str, Any] = {"params": query} if query else {}
            url = _Address(url, path=url.path.rstrip("/") + path, **more)
        self._tls = self._tls or httpx.create_ssl_context()
        try:
            with (
                _Limit(self._limit_s) as limit,
                httpx.Client(verify=self._tls, timeout=self._limit_s) as client,
            ):
                request = client.build_request(
                    method, url, content=content, headers={**_HEADERS, **headers},
                    extensions={"trace": limit.watch},
                )  # fmt: skip
                request.url = url
                reply = client.send(request, stream=True)
                try:
                    said = self._read(reply, most, limit) if reply.is_success else b""
                    return reply.status_code, said
                finally:
                    reply.close()
        except (httpx.HTTPError, OSError) as error:
            why = f"{type(error).__name__}: {error}"[:200]
            raise DeliveryError(why, again=True) from None

    def _read(self, reply: httpx.Response, most: int, limit: _Limit) -> bytes:
        """The beginning of a body; empty if it is encoded."""
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            msg = "%s: its reply was not read: it is encoded as %.50s, unasked"
            logger.warning(msg, self.host, encoding)
            return b""
        said = bytearray()
        for piece in reply.iter_raw():
            said += piece[: most - len(said)]
            if len(said) >= most:
                break
            limit.check()
        return bytes(said)


class _Address(httpx.URL):
    """An address that hides path and query when printed: they may be secret.

    httpx logs the address of every request, and what instruments httpx writes it on spans.
    """

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{port}/***"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class _Limit:
    """A limit for a whole request: its connection is shut when it is over, whatever it waits for.

    Limits of httpx begin anew with every piece that is read.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._over = Signal()
        self._lock = new_lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(limit_s, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # no thread can be had: the limits of httpx hold
            self._timer.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket = None
        if isinstance(error, Exception):
            # Its connection was shut: what that raises is of no interest.
            self.check()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Hears of each step of the transport (httpx calls this the extension `trace`)."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            connection = info["return_value"]
            with self._lock:
                self._socket = connection.get_extra_info("socket")
            if self._over.is_set():
                connection.close()  # the transport has not taken it yet
            self.check()

    def check(self) -> None:
        """Ends the request if its time is over."""
        if self._over.is_set():
            raise httpx.ReadTimeout(f"no whole reply within {self._limit_s:g} s") from None

    def _shut(self) -> None:
        with self._lock:
            self._over.set()
            if self._socket is not None:
                with suppress(OSError):
                    # On the plain connection: shutting down a TLS socket removes its TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
