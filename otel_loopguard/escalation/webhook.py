"""Posts escalations to an address, signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import httpx
import orjson

from otel_loopguard._util.locks import Signal, new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import take_reply
from otel_loopguard.escalation.payload import encoded, message
from otel_loopguard.settings import key_bytes
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.answers import Answered
    from otel_loopguard.settings import Settings


def key_of(secret: str) -> bytes:
    """The key of a secret: Base64 after `whsec_`, else the text itself."""
    try:
        return key_bytes(secret)
    except ValueError as error:
        msg = f"webhook_secret (LOOPGUARD_WEBHOOK_SECRET): {error}"
        raise LoopGuardSettingsError(msg) from None


def headers(message_id: str, timestamp: int, body: bytes, key: bytes) -> dict[str, str]:
    """The three headers of a post: id, time, and `v1,` with the HMAC-SHA256 in Base64.

    Signed are id, time and body with a dot between each two.
    """
    found = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if key:
        signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found


# An answer with a plan of a few hundred tasks fits.
_MOST: Final = 65_536
"""Bytes of a reply that are read."""
# Time-out, too early, too many requests: the only refusals that pass by themselves.
_AGAIN: Final = frozenset({408, 425, 429})
_USER_AGENT: Final = f"otel-loopguard/{__version__}"


class Webhook:
    """Posts escalations as JSON: `type`, `timestamp`, `text` and the package as `data`.

    Sent once more, later, where nobody answered in time, a connection failed, or the answer was
    408, 425, 429 or 5xx. Redirections are not followed. An answer 2xx with a JSON object that has
    `answer` (and perhaps `guidance` and `by`) is the answer to the escalation. Of a reply 64 KiB
    are read, as they come: it is asked for without an encoding, and not unpacked if it has one.
    """

    def __init__(self, settings: Settings, answered: Answered) -> None:
        self._url, self._place = _address(settings.webhook_url.get_secret_value())
        self._key = key_of(settings.webhook_secret.get_secret_value())
        self._limit_s = settings.tuning.delivery.timeout_s
        self._answered = answered

    def deliver(self, escalation: Escalation) -> bool:
        """Posts one; False: try it again later. May block for `tuning.delivery.timeout_s`."""
        body = self.body(escalation)
        signed = headers(f"esc_{escalation.id}", int(time.time()), body, self._key)
        more = {
            "content-type": "application/json",
            "user-agent": _USER_AGENT,
            "accept-encoding": "identity",
        }
        try:
            status, said = self._post(body, {**signed, **more})
        except (httpx.HTTPError, OSError) as error:
            return self._failed(escalation, f"{type(error).__name__}: {error}"[:200], again=True)
        if not 200 <= status < 300:
            again = status >= 500 or status in _AGAIN
            return self._failed(escalation, f"HTTP status {status}", again=again)
        self._take(escalation, said)
        return True

    @staticmethod
    def body(escalation: Escalation) -> bytes:
        """What is posted about an escalation."""
        return encoded(
            {
                "type": "loopguard.escalation",
                "timestamp": escalation.at // 1_000_000_000,
                "text": message(escalation),
                "data": escalation.row(),
            }
        )

    def _post(self, body: bytes, sent: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and beginning of the reply; slow ones are left at the limit, however they drip."""
        with (
            _Limit(self._limit_s) as limit,
            httpx.Client(timeout=self._limit_s, follow_redirects=False) as client,
        ):
            request = client.build_request(
                "POST", self._url, content=body, headers=sent, extensions={"trace": limit.watch}
            )
            request.url = self._url
            reply = client.send(request, stream=True)
            try:
                said = self._read(reply, limit) if reply.is_success else b""
                return reply.status_code, said
            finally:
                reply.close()

    def _read(self, reply: httpx.Response, limit: _Limit) -> bytes:
        """Reads the beginning of a reply; empty if it is compressed."""
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            msg = "webhook %s: its answer was not taken: it is encoded as %.50s, unasked"
            logger.warning(msg, self._place, encoding)
            return b""
        said = bytearray()
        for piece in reply.iter_raw():
            said += piece[: _MOST + 1 - len(said)]
            if len(said) > _MOST:
                break
            limit.check()
        return bytes(said)

    def _take(self, escalation: Escalation, said: bytes) -> None:
        """Applies the reply if it is an answer; logs one that is not, or that is too late."""
        try:
            found: Any = orjson.loads(said) if len(said) <= _MOST else None
        except orjson.JSONDecodeError:
            # Many servers say `ok`.
            return
        if not isinstance(found, dict):
            return
        try:
            take_reply(escalation, cast("object", found), "webhook", self._answered)
        except (EscalationError, PlanError) as error:
            logger.warning("webhook %s: its answer was not taken: %s", self._place, error)

    def _failed(self, escalation: Escalation, why: str, *, again: bool) -> bool:
        then = "it is tried again" if again else "it is not tried again"
        msg = "webhook %s: escalation %s was not delivered: %s; %s"
        logger.warning(msg, self._place, escalation.id, why, then)
        return not again


class _Address(httpx.URL):
    """An address that posts go to, and that nobody can print: its path and query may be secret.

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
        self._timer.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket = None
        if self._over.is_set() and isinstance(error, Exception):
            # What a connection says that was shut meanwhile says nothing.
            raise httpx.ReadTimeout(self._why) from None

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
            raise httpx.ReadTimeout(self._why)

    @property
    def _why(self) -> str:
        return f"no whole reply within {self._limit_s:g} s"

    def _shut(self) -> None:
        with self._lock:
            self._over.set()
            if self._socket is not None:
                with suppress(OSError):
                    # Of the connection itself: a TLS socket that is shut takes off its TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _address(url: str) -> tuple[_Address, str]:
    """An address, and its host for logs; the rest may be secret."""
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        found = _Address(url.strip()) if usable else None
    except (ValueError, httpx.InvalidURL):
        found = None
    if found is None or not found.host:
        msg = "webhook_url (LOOPGUARD_WEBHOOK_URL): expected http://HOST/… or https://HOST/…"
        raise LoopGuardSettingsError(msg)
    return found, found.host
