"""Calls of a backend's HTTP API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import httpx
import orjson

from otel_loopguard._util.locks import reset_after_fork
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.version import __version__

_MOST: Final = 1_048_576
"""Bytes of a reply that are read."""
_FOR_GOOD: Final = frozenset({400, 401, 403, 405, 410, 413, 415, 422})


class DeliveryError(Exception):
    """A verdict was not taken.

    Attributes:
        again: Whether another try may help.
    """

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class BackendAPI:
    """The API of one backend. A connection lasts for one call: verdicts are rare.

    Args:
        variable: The variable that the address comes from, for the message if it cannot be used.
        url: Address of the backend.
        headers: Headers of every request; keys are never logged.
        limit_s: Seconds that a call may take.

    Raises:
        LoopGuardSettingsError: The address cannot be used.
    """

    def __init__(self, variable: str, url: str, headers: Mapping[str, str], limit_s: float) -> None:
        try:
            self._url = httpx.URL(url.strip().rstrip("/"))
        except httpx.InvalidURL:
            self._url = httpx.URL()
        if self._url.scheme not in {"http", "https"} or not self._url.host:
            # Not the value: a password may be in it.
            msg = f"{variable}: expected http://HOST/… or https://HOST/…"
            raise LoopGuardSettingsError(msg)
        # Not in the address: httpx logs that of every request.
        user, password = self._url.username, self._url.password
        self._auth = httpx.BasicAuth(user, password) if user or password else None
        self._url = self._url.copy_with(userinfo=b"")
        self._headers = {
            **headers,
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": f"otel-loopguard/{__version__}",
        }
        self._limit_s = limit_s
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Resets TLS in the child of a fork."""
        # Made on the first call, for it takes longer than a call.
        self._tls: Any = None

    @property
    def host(self) -> str:
        """The host, for logs."""
        return self._url.host

    def call(self, method: str, path: str, body: object = None, **query: str | int) -> Any:
        """The reply as JSON; None if it is none. Blocks.

        Raises:
            DeliveryError: It was not answered with a status of 2xx.
        """
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        url = self._url.copy_with(path=self._url.path.rstrip("/") + path)
        content = None if body is None else orjson.dumps(body)
        try:
            with (
                httpx.Client(verify=self._tls, timeout=self._limit_s, auth=self._auth) as client,
                client.stream(
                    method, url, content=content, params=query or None, headers=self._headers
                ) as reply,
            ):
                said = self._read(reply)
        except (httpx.HTTPError, OSError) as error:
            why = f"{type(error).__name__}: {error}"[:200]
            raise DeliveryError(why, again=True) from None
        if not reply.is_success:
            why = f"HTTP status {reply.status_code}"
            raise DeliveryError(why, again=reply.status_code not in _FOR_GOOD)
        try:
            return orjson.loads(said)
        except orjson.JSONDecodeError:
            return None

    def _read(self, reply: httpx.Response) -> bytes:
        """The beginning of a reply as it came; nothing of one that is to be unpacked, unasked.

        Limits of httpx begin anew with every piece that is read.
        """
        if reply.headers.get("content-encoding", "identity").strip().lower() != "identity":
            return b""
        until = time.monotonic() + self._limit_s
        said = bytearray()
        for piece in reply.iter_raw():
            said += piece[: _MOST - len(said)]
            if len(said) >= _MOST or time.monotonic() > until:
                break
        return bytes(said)


def required(environment: Mapping[str, str], backend: str, name: str) -> str:
    """A variable that a backend cannot do without.

    Raises:
        LoopGuardSettingsError: It is not set.
    """
    found = environment.get(name, "").strip()
    if not found:
        msg = f"verdicts (LOOPGUARD_VERDICTS) is {backend!r}, which needs the variable {name}"
        raise LoopGuardSettingsError(msg)
    return found
