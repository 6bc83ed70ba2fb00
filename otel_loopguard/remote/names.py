"""The name of a session as it travels: short, and of plain characters."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote_plus

_LONGEST: Final = 48
_MARK: Final = "~"


def wire_name(key: str) -> str:
    """The name under which other processes know a session (O5).

    Args:
        key: Key of the session.

    Returns:
        The key itself, where it takes at most 48 bytes as baggage writes it; else `~` and 22
        characters of its digest (blake2b, 16 bytes), of which the name is itself.
    """
    if len(quote_plus(key, errors="replace")) <= _LONGEST and key.isprintable():
        return key
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return _MARK + base64.urlsafe_b64encode(digest).decode().rstrip("=")
