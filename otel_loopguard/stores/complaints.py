"""Warnings that are given once for each key."""

from __future__ import annotations

from typing import Final

from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger

_MOST: Final = 256


class Complaints:
    """Says once of each key what is wrong with it. Of more than 256 keys nothing more is said."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        self._lock = new_lock()

    def tell(self, key: str, what: str) -> None:
        """Logs a warning, the first time that it is about this key."""
        with self._lock:
            if key in self._told or len(self._told) >= _MOST:
                return
            self._told.add(key)
        logger.warning("store: %s", what)
