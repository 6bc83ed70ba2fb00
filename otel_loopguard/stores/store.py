"""The protocol of a store."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from otel_loopguard._util.logger import logger

RECORDS: Final = 100
"""Newest records kept of each tool: a profile needs no more, and a store holds a thousand tools."""
RECORDS_S: Final = 7 * 86_400
"""Seconds that a record is kept: what a tool took a week ago says little about today."""


class Subscription(Protocol):
    """A subscription to one topic."""

    def close(self) -> None:
        """Ends it, soon. Does not wait; may be called twice."""
        ...


class Store(Protocol):
    """Keeps what outlives a process.

    May block: called from the writer's thread, or where the application waits.
    Every method may be called from any thread and raises `StoreError` when it cannot do its work.
    Every write may be repeated: after a lost acknowledgement it has the same effect once more.
    """

    def add_records(self, tool: str, records: Sequence[bytes]) -> None:
        """Adds to the profile of a tool, of which the newest 100 of 7 days are kept.

        Each is a JSON list that starts with its time, nanoseconds since the epoch. Equal records
        are one.
        """
        ...

    def records(self, tool: str) -> list[bytes]:
        """The profile of a tool, oldest first; empty if there is none."""
        ...

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        """Adds to the journal of a session, of which the newest 1000 entries are kept.

        An id that is in the journal is not stored again.
        """
        ...

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        """The journal of a session; if it has the entry `after`, what follows that."""
        ...

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Stores a value for good, or `ttl_s`; what is there already is replaced."""
        ...

    def get(self, kind: str, key: str) -> bytes | None:
        """A value; None if there is none."""
        ...

    def delete(self, kind: str, key: str) -> None:
        """Removes a value, and the claim of the same name."""
        ...

    def claim(self, kind: str, key: str, owner: str, ttl_s: float) -> bool:
        """Claims a key for `ttl_s`; True if the owner has it now. Atomic.

        It lies beside the value of that name. Claiming it again succeeds, and does not extend it.
        """
        ...

    def publish(self, topic: str, message: bytes) -> None:
        """Sends a message to all present subscribers of a topic, in any process; keeps none.

        With a `StoreError` it may have arrived all the same.
        """
        ...

    def subscribe(
        self, topic: str, take: Callable[[bytes], None], joined: Callable[[], None] | None = None,
    ) -> Subscription:  # fmt: skip
        """Subscribes to a topic. Does not wait, and resumes after an outage of the store.

        `take` gets each message, on any thread; `joined` is called whenever messages begin to
        arrive: at the start, and after an outage in which some may have been missed. Neither may
        raise, nor hold this subscription.
        """
        ...

    def ping(self) -> None:
        """Raises `StoreError` if the store cannot be reached."""
        ...

    def close(self) -> None:
        """Releases connections; the next call opens new ones."""
        ...


_JSON: Final = re.compile(rb"\A\s*\[\s*(\d{1,19})(?=[\s,\]])")
# The year 2116: Lua and floats still count milliseconds there exactly.
_LATEST: Final = 1 << 62


def time_of(record: bytes) -> int:
    """The time of a record, nanoseconds since the epoch; now, if it has none."""
    found = _JSON.match(record)
    return time.time_ns() if found is None else min(int(found[1]), _LATEST)


# More would fill the log of a store with a fault in every key.
_MOST_LOGGED: Final = 256


class LogOnce:
    """Logs one warning about each key; about more than 256 keys nothing more is logged."""

    def __init__(self) -> None:
        # No lock: a warning that two threads log twice does no harm.
        self._logged: set[str] = set()

    def log(self, key: str, what: str) -> None:
        """Logs a warning, the first time that it is about this key."""
        if key not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(key)
            logger.warning("store: %s", what)
