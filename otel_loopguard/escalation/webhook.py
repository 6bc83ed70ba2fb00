"""Posts escalations to an address, signed. Needs httpx, which is an extra."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.errors import logger
from otel_loopguard._util.http import Endpoint
from otel_loopguard._util.text import encoded, json_object
from otel_loopguard._util.worker import DeliveryError, DeliveryQueue
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.escalation.cases import message
from otel_loopguard.settings import Settings, key_bytes

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.report import Escalation

# An answer with a plan of a few hundred tasks fits.
_MOST_REPLY: Final = 65_536
# Time-out, too early, too many requests: the only refusals that pass by themselves.
_PASSING: Final = frozenset({408, 425, 429})
_QUIET: Final = str.maketrans({sign: f"{sign}\u200b" for sign in "<@]"})
"""Names and errors in the text come from models and tools. A space without width behind these signs
keeps chats from taking them for a mention (`<!channel>`, `@all`) or a link."""


class Webhook:
    """Posts escalations in the background as JSON: `type`, `timestamp`, `text` and `data`.

    Posted again where a connection failed, nobody answered in time, or the status is 408, 425, 429
    or 5xx. A reply 2xx with a JSON object that has `answer` (and perhaps `guidance` and `by`)
    answers the escalation.

    Args:
        settings: Settings.
        faults: Counts internal errors.
        take: Takes where a reply came from, what it is about, and its JSON object.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors,
        take: Callable[[str, Escalation, object], None],
    ) -> None:  # fmt: skip
        tuning = settings.tuning.delivery
        try:
            url = settings.webhook_url.get_secret_value()
            self._endpoint = Endpoint(url, tuning.timeout_s)
        except ValueError as error:
            raise LoopGuardSettingsError(f"webhook_url (LOOPGUARD_WEBHOOK_URL): {error}") from None
        self._key = key_bytes(settings.webhook_secret.get_secret_value())
        self._take = take
        self._queue: DeliveryQueue[Escalation] = DeliveryQueue(
            "webhook", self._deliver, faults, self._failed,
            maximum=tuning.queue, attempts=tuning.attempts, retry_s=tuning.retry_s,
            until=lambda one: one.until,
        )  # fmt: skip
        self.flush = self._queue.flush

    def put(self, escalation: Escalation) -> None:
        """Queues an escalation."""
        if not self._queue.put(escalation):
            self._failed(escalation, "too many wait", again=False)

    def _deliver(self, escalation: Escalation) -> None:
        body = encoded(
            {
                "type": "loopguard.escalation",
                "timestamp": escalation.at // 1_000_000_000,
                "text": message(escalation).translate(_QUIET),
                "data": escalation.row(),
            }
        )
        signed = _headers(f"esc_{escalation.id}", body, self._key)
        # One byte more: a longer reply is none, although its beginning may look like one.
        status, said = self._endpoint.send("POST", body, signed, most=_MOST_REPLY + 1)
        if not 200 <= status < 300:
            why = f"HTTP status {status}"
            raise DeliveryError(why, again=status >= 500 or status in _PASSING)
        found = json_object(said, _MOST_REPLY)  # many servers say `ok`
        if found is not None:
            self._take(f"webhook {self._endpoint.host}", escalation, found)

    def _failed(self, escalation: Escalation, why: str, again: bool) -> None:
        then = "it is tried again" if again else "it is not tried again"
        msg = "webhook %s: escalation %s was not delivered: %s; %s"
        logger.warning(msg, self._endpoint.host, escalation.id, why, then)


def _headers(message_id: str, body: bytes, key: bytes) -> dict[str, str]:
    """Headers of Standard Webhooks: id, time, and `v1,` with the HMAC-SHA256 in Base64.

    Signed are id, time and body with a dot between each two.
    """
    found = {"webhook-id": message_id, "webhook-timestamp": str(int(time.time()))}
    if key:
        signed = b".".join((message_id.encode(), found["webhook-timestamp"].encode(), body))
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found
