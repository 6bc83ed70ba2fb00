"""Posts escalations to an address; what is answered may be the answer (C8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import httpx
import orjson

from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import Reply, reply_in
from otel_loopguard.escalation.encoding import encoded
from otel_loopguard.escalation.message import message
from otel_loopguard.escalation.signing import headers, key_of
from otel_loopguard.logger import logger
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.escalation.package import Escalation
    from otel_loopguard.settings import Settings

_MOST: Final = 65_536
"""Bytes of a reply that are read."""
_AGAIN: Final = frozenset({408, 425, 429})
_USER_AGENT: Final = f"otel-loopguard/{__version__}"


class Webhook:
    """Posts escalations as JSON: `type`, `timestamp`, `text` and the package as `data`.

    Sent once more, later, where nobody answered in time, a connection failed, or the answer was
    408, 425, 429 or 5xx. Redirections are not followed. An answer 2xx with a JSON object that has
    `answer` (and perhaps `guidance` and `by`) is the answer to the escalation.

    Args:
        settings: `webhook_url` and what begins so.
        answered: Takes an answer: id of the escalation, and the reply.

    Raises:
        LoopGuardSettingsError: Address or secret cannot be used.
    """

    def __init__(self, settings: Settings, answered: Callable[[str, Reply], object]) -> None:
        self._url = settings.webhook_url
        self._place = _host(self._url)
        self._key = key_of(settings.webhook_secret)
        self._limit_s = settings.webhook_timeout_s
        self._answered = answered

    def deliver(self, escalation: Escalation) -> bool:
        """Posts one; False: try it again later. May block for `webhook_timeout_s`."""
        body = self.body(escalation)
        signed = headers(f"esc_{escalation.id}", int(time.time()), body, self._key)
        more = {"content-type": "application/json", "user-agent": _USER_AGENT}
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

    def _post(self, body: bytes, sent: dict[str, str]) -> tuple[int, bytes]:
        """Status and beginning of the reply; slow ones are left at the limit, however they drip."""
        until = time.monotonic() + self._limit_s
        said = b""
        with (
            httpx.Client(timeout=self._limit_s, follow_redirects=False) as client,
            client.stream("POST", self._url, content=body, headers=sent) as reply,
        ):
            for piece in reply.iter_bytes():
                said += piece
                if len(said) > _MOST:
                    break
                if time.monotonic() > until:
                    msg = f"no whole reply within {self._limit_s:g} s"
                    raise httpx.ReadTimeout(msg)
        return reply.status_code, said

    def _take(self, escalation: Escalation, said: bytes) -> None:
        """Takes the reply as an answer, if it is one; what is none, or too late, is told."""
        try:
            found: Any = orjson.loads(said) if len(said) <= _MOST else None
        except orjson.JSONDecodeError:
            # Many servers say `ok`.
            return
        if not isinstance(found, dict):
            return
        try:
            reply = reply_in(cast("dict[str, object]", found), "webhook")
            if reply is not None:
                self._answered(escalation.id, reply)
        except (EscalationError, PlanError) as error:
            logger.warning("webhook %s: its answer was not taken: %s", self._place, error)

    def _failed(self, escalation: Escalation, why: str, *, again: bool) -> bool:
        then = "it is tried again" if again else "it is not tried again"
        told = "webhook %s: escalation %s was not delivered: %s; %s"
        logger.warning(told, self._place, escalation.id, why, then)
        return not again


def _host(url: str) -> str:
    """The host of an address; the rest of it may be secret, and is not told."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    else:
        host = host if parts.scheme in {"http", "https"} else None
    if not host:
        msg = "webhook_url (LOOPGUARD_WEBHOOK_URL): expected http://HOST/… or https://HOST/…"
        raise LoopGuardSettingsError(msg)
    return host
