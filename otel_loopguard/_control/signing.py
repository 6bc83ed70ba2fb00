"""Session and action in baggage: signed, short, with a time limit."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action

# The secret in use, and earlier ones that messages on their way are signed with.
_SECRETS: Final = 4

_keys: tuple[bytes, ...] = ()
_adding = new_lock()


def keys() -> tuple[bytes, ...]:
    """The secrets, newest first; at most four. With the first one is signed."""
    return _keys


def add(secret: str) -> None:
    """Adds a secret, or makes it the newest; does nothing without one."""
    global _keys  # noqa: PLW0603
    key = secret.encode("utf-8", "surrogatepass")
    if key and _keys[:1] != (key,):
        with _adding:
            _keys = (key, *(known for known in _keys if known != key))[:_SECRETS]


def forget() -> None:
    """Forgets all secrets: for tests."""
    global _keys  # noqa: PLW0603
    with _adding:
        _keys = ()


_SIGNED: Final = re.compile(
    r"(?P<action>allow|deny|pause|abort)\.(?P<at>[0-9a-f]{8})\.(?P<seal>[\w-]{16})", flags=re.ASCII
)
_NAME_CHARS: Final = 48
"""Characters of a session's name, as of `wire_name`."""
_EARLY_S: Final = 60
"""Seconds that a sender's clock may be ahead."""

Refusal = Literal["oversized", "garbage", "unsigned", "forged", "expired", "no_key"]
"""Why incoming baggage was ignored."""


class Entries(NamedTuple):
    """Values of `loopguard.session` and `loopguard.control` in baggage.

    Empty if one is missing, None if it cannot be used: it is too long, or there are two of them.
    """

    session: str | None
    control: str | None


class Seal(NamedTuple):
    """Session and action of signed baggage, and when it was sent, in seconds since the epoch."""

    session: str
    action: Action
    at: int


def sealed(seal: Seal, key: bytes, trace_id: int) -> Entries:
    """Both entries: the session; and action, time and signature, 31 bytes at most.

    The signature is an HMAC-SHA256 of session, action, time and trace, 12 bytes of it: it says
    nothing in another trace or for another session.
    """
    signature = _signature(seal, key, trace_id)
    return Entries(seal.session, f"{seal.action.value}.{seal.at:08x}.{signature}")


def opened(
    entries: Entries, keys: Sequence[bytes], trace_id: int, now: int, ttl_s: float
) -> Seal | Refusal:
    """Verifies entries; returns their content, or the reason of the refusal."""
    session, value = entries
    if session is None or value is None:
        return "oversized"
    found = _SIGNED.fullmatch(value)
    if found is None or not 0 < len(session) <= _NAME_CHARS:
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
