"""Signs what a webhook posts, after the Standard Webhooks specification (standardwebhooks.com)."""

from __future__ import annotations

import base64
import hashlib
import hmac

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings.fields import key_bytes


def key_of(secret: str) -> bytes:
    """The key of a secret: Base64 after `whsec_`, else the text itself.

    Raises:
        LoopGuardSettingsError: What stands after `whsec_` is not Base64.
    """
    try:
        return key_bytes(secret)
    except ValueError as error:
        msg = f"webhook_secret (LOOPGUARD_WEBHOOK_SECRET): {error}"
        raise LoopGuardSettingsError(msg) from None


def headers(message_id: str, timestamp: int, body: bytes, key: bytes) -> dict[str, str]:
    """The three headers of a post: id, time, and `v1,` with the HMAC-SHA256 in Base64.

    Signed are id, time and body with a dot between each two.

    Args:
        message_id: Id of the message; the same in every try.
        timestamp: When it is posted, seconds since the epoch.
        body: What is posted.
        key: The key; empty: without a signature.
    """
    found = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if key:
        signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        found["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return found
