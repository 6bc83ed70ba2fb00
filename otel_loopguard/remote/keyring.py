"""The secrets with which this process signs baggage, and believes it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from otel_loopguard.locks import new_lock

if TYPE_CHECKING:
    from otel_loopguard.stores import Store

_KIND: Final = "propagation"
_NAME: Final = "key"
_MOST: Final = 4
_CLAIM_S: Final = 5.0

_keys: tuple[bytes, ...] = ()
_adding = new_lock()


def keys() -> tuple[bytes, ...]:
    """The secrets, newest first; at most four. With the first one is signed."""
    return _keys


def add(key: bytes | None) -> None:
    """Adds a secret, or makes it the newest; does nothing without one."""
    global _keys  # noqa: PLW0603
    if key and _keys[:1] != (key,):
        with _adding:
            _keys = (key, *(known for known in _keys if known != key))[:_MOST]


def forget() -> None:
    """Forgets all secrets: for tests."""
    global _keys  # noqa: PLW0603
    with _adding:
        _keys = ()


def key_of(store: Store) -> bytes | None:
    """The secret that all processes on one store share; made by the first. May block.

    Args:
        store: The store.

    Returns:
        None if another process was about to make it, and did not within a quarter of a second.

    Raises:
        StoreError: The store cannot be read or written.
    """
    for pause_s in (0, 0.02, 0.05, 0.2):
        time.sleep(pause_s)
        found = store.get(_KIND, _NAME)
        if found is not None:
            return found
        if store.claim(_KIND, _NAME, secrets.token_hex(8), _CLAIM_S):
            # Whoever had the claim before may have put one meanwhile.
            found = store.get(_KIND, _NAME) or secrets.token_bytes(32)
            store.put(_KIND, _NAME, found)
            return found
    return None
