"""The store of one process: tables in memory, each of a bounded size."""

from __future__ import annotations

import time
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import dropwhile, islice
from typing import Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard.stores.store import RECORDS, RECORDS_S, time_of


class MemorySubscription:
    """A listener of a `MemoryStore`; see `Subscription`."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close


_TOOLS: Final = 1000
_VALUES: Final = 10_000
_ENTRY_BYTES: Final = 200
"""Bytes of an entry beside its value: two objects and a slot in a table, about."""


class MemoryStore:
    """Keeps everything in memory, and forgets it with the process. Never fails.

    Kept are the records of 1000 tools, 10,000 values of each kind, and journals up to
    `journal_bytes`; what was unused for longest goes first.

    Args:
        records: Newest records kept of each tool.
        records_ttl_s: Seconds that a record is kept.
        journal_entries: Newest entries kept of each journal.
        journal_bytes: Bytes of all journals together.
        clock: Nanoseconds since the epoch.
    """

    def __init__(
        self,
        *,
        records: int = RECORDS,
        records_ttl_s: float = RECORDS_S,
        journal_entries: int = 1000,
        journal_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._most_records = records
        self._records_ttl = int(records_ttl_s * 1e9)
        self._most_entries = journal_entries
        self._most_bytes = journal_bytes
        self._clock = clock
        self._records: BoundedDict[str, list[tuple[int, bytes]]] = BoundedDict(_TOOLS)
        self._journals: OrderedDict[str, OrderedDict[str, bytes]] = OrderedDict()
        self._bytes = 0
        self._values: dict[str, BoundedDict[str, tuple[bytes, int | None]]] = {}
        self._claims: BoundedDict[tuple[str, str], tuple[str, int]] = BoundedDict(_VALUES)
        # Replaced, not changed: `publish` takes no lock.
        self._listeners: tuple[tuple[str, Callable[[bytes], None]], ...] = ()
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock. What is there stays."""
        self._lock = new_lock()

    def add_records(self, tool: str, records: Sequence[bytes]) -> None:
        """Adds to the profile of a tool; see `Store.add_records`."""
        now = self._clock()
        with self._lock:
            known = self._records[tool] = self._records.get(tool) or []
            for record in records:
                # A clock that is ahead must not have the newest records for ever.
                entry = (min(time_of(record), now), record)
                if entry not in known:
                    insort(known, entry)
            old = sum(1 for at, _ in known if at < now - self._records_ttl)
            del known[: max(old, len(known) - self._most_records)]

    def records(self, tool: str) -> list[bytes]:
        """The profile of a tool, oldest first; see `Store.records`."""
        since = self._clock() - self._records_ttl
        with self._lock:
            return [record for at, record in self._records.get(tool, ()) if at >= since]

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        """Adds to the journal of a session; see `Store.append`."""
        with self._lock:
            journal = self._journals.setdefault(session, OrderedDict())
            self._journals.move_to_end(session)
            for entry_id, value in entries:
                if entry_id not in journal:
                    journal[entry_id] = value
                    self._bytes += _size(entry_id, value)
            while len(journal) > self._most_entries:
                self._bytes -= _size(*journal.popitem(last=False))
            while self._bytes > self._most_bytes and len(self._journals) > 1:
                _, oldest = self._journals.popitem(last=False)
                self._bytes -= sum(_size(*entry) for entry in oldest.items())

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        """The journal of a session; see `Store.journal`."""
        with self._lock:
            journal = self._journals.get(session, OrderedDict[str, bytes]())
            if after is None or after not in journal:
                return list(journal.items())
            later = dropwhile(lambda entry: entry[0] != after, journal.items())
            return list(islice(later, 1, None))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Stores a value; see `Store.put`."""
        until = None if ttl_s is None else self._clock() + int(ttl_s * 1e9)
        with self._lock:
            self._values.setdefault(kind, BoundedDict(_VALUES))[key] = (value, until)

    def get(self, kind: str, key: str) -> bytes | None:
        """A value, or None; see `Store.get`."""
        with self._lock:
            values = self._values.get(kind)
            found = None if values is None else values.get(key)
            if values is None or found is None:
                return None
            value, until = found
            if until is not None and until <= self._clock():
                del values[key]
                return None
            values.move_to_end(key)
            return value

    def delete(self, kind: str, key: str) -> None:
        """Removes a value and its claim; see `Store.delete`."""
        with self._lock:
            if kind in self._values:
                self._values[kind].pop(key, None)
            self._claims.pop((kind, key), None)

    def claim(self, kind: str, key: str, owner: str, ttl_s: float) -> bool:
        """See `Store.claim`."""
        now = self._clock()
        with self._lock:
            holder, until = self._claims.get((kind, key), (owner, 0))
            if until > now:
                return holder == owner
            self._claims[kind, key] = (owner, now + int(ttl_s * 1e9))
            return True

    def publish(self, topic: str, message: bytes) -> None:
        """Calls all listeners of a topic, on the caller's thread; see `PubSub.publish`."""
        for known, take in self._listeners:
            if known == topic:
                take(message)

    def subscribe(
        self,
        topic: str,
        take: Callable[[bytes], None],
        joined: Callable[[], None] | None = None,
    ) -> MemorySubscription:
        """Adds a listener of a topic; see `PubSub.subscribe`."""
        entry = (topic, take)
        with self._lock:
            self._listeners = (*self._listeners, entry)
        if joined is not None:
            joined()

        def close() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not entry)

        return MemorySubscription(close)

    def ping(self) -> None:
        """It is always there."""

    def close(self) -> None:
        """Does nothing."""


def _size(entry_id: str, value: bytes) -> int:
    return len(entry_id) + len(value) + _ENTRY_BYTES
