"""Session and action in baggage: signed, short, with a time limit."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from otel_loopguard.core import Action

_SIGNED: Final = re.compile(
    r"(?P<action>allow|deny|pause|abort)\.(?P<at>[0-9a-f]{8})\.(?P<seal>[\w-]{16})",
    flags=re.ASCII,
)
_MOST_SESSION: Final = 48
_EARLY_S: Final = 60
"""Seconds that a sender's clock may be ahead."""

Refusal = Literal["oversized", "garbage", "unsigned", "forged", "expired", "no_key"]
"""Why incoming baggage was ignored."""


class Entries(NamedTuple):
    """Values of our two entries of baggage.

    Attributes:
        session: Of `loopguard.session`; empty if it is missing, None if it cannot be used: it is
            too long, or there are two of them.
        control: Of `loopguard.control`, likewise.
    """

    session: str | None
    control: str | None


class Seal(NamedTuple):
    """What signed baggage says.

    Attributes:
        session: Name of the session.
        action: Its action when it was sent: `allow`, `deny`, `pause` or `abort`.
        at: When it was sent, seconds since the epoch.
    """

    session: str
    action: Action
    at: int


def sealed(seal: Seal, key: bytes, trace_id: int) -> Entries:
    """Both entries: the session; and action, time and signature, 31 bytes at most.

    The signature is an HMAC-SHA256 of session, action, time and trace, 12 bytes of it: it says
    nothing in another trace or for another session.

    Args:
        seal: What is said.
        key: The shared secret.
        trace_id: Trace in which it is sent; 0 if there is none.
    """
    signature = _signature(seal, key, trace_id)
    return Entries(seal.session, f"{seal.action.value}.{seal.at:08x}.{signature}")


def opened(
    entries: Entries, keys: Sequence[bytes], trace_id: int, now: int, ttl_s: float
) -> Seal | Refusal:
    """What entries say; or why they are not to be believed.

    Args:
        entries: The entries; one at least is not empty.
        keys: Secrets that count.
        trace_id: Trace in which they came; 0 if there is none. What was sent outside of any trace
            counts in none.
        now: Seconds since the epoch.
        ttl_s: Seconds after which a signature counts no more.
    """
    session, value = entries
    if session is None or value is None:
        return "oversized"
    found = _SIGNED.fullmatch(value)
    if found is None or not 0 < len(session) <= _MOST_SESSION:
        return "unsigned" if not value else "garbage"
    if not keys:
        return "no_key"
    seal = Seal(session, Action(found["action"]), int(found["at"], 16))
    if not any(hmac.compare_digest(found["seal"], _signature(seal, key, trace_id)) for key in keys):
        return "forged"
    if not -_EARLY_S <= now - seal.at <= ttl_s:
        return "expired"
    return seal


def _signature(seal: Seal, key: bytes, trace_id: int) -> str:
    text = "\n".join(("loopguard-1", seal.session, seal.action.value, str(seal.at), str(trace_id)))
    digest = hmac.digest(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:12]).decode()
