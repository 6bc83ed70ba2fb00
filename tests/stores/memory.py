"""A store in memory, for tests: the contract of `RedisStore`, without a server."""

import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence

from otel_loopguard._util.locks import reset_after_fork
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.redis import RedisStore, time_of
from otel_loopguard.stores.redis_connection import RedisSubscription


class Subscribed(RedisSubscription):
    """A subscription without a thread."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._end = close

    def close(self) -> None:
        self._end()


class MemoryStore(RedisStore):
    """Keeps the newest 100 records of 7 days and 1000 journal entries, as Redis does by default."""

    def __init__(self, *, journal_entries: int = 1000) -> None:
        self._entries = journal_entries
        self._records: dict[str, list[tuple[int, bytes]]] = {}
        self._journals: dict[str, dict[str, bytes]] = {}
        self._values: dict[tuple[str, str], tuple[bytes, float | None]] = {}
        self._claims: dict[tuple[str, str], tuple[str, float]] = {}
        self._listeners: tuple[tuple[str, Callable[[bytes], None]], ...] = ()
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        self._lock = threading.RLock()

    def add_records(self, tool: str, records: Sequence[bytes]) -> None:
        now = time.time_ns()
        with self._lock:
            known = self._records.setdefault(tool, [])
            for record in records:
                entry = (min(time_of(record), now), record)
                if entry not in known:
                    insort(known, entry)
            known[:] = [entry for entry in known if entry[0] >= now - 604_800 * 10**9][-100:]

    def records(self, tool: str) -> list[bytes]:
        with self._lock:
            return [record for _, record in self._records.get(tool, ())]

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        with self._lock:
            journal = self._journals.setdefault(session, {})
            for entry_id, value in entries:
                journal.setdefault(entry_id, value)
            while len(journal) > self._entries:
                del journal[next(iter(journal))]

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        with self._lock:
            entries = list(self._journals.get(session, {}).items())
        ids = [entry_id for entry_id, _ in entries]
        return entries[ids.index(after) + 1 if after in ids else 0 :]

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        self._values[kind, key] = (value, None if ttl_s is None else time.monotonic() + ttl_s)

    def get(self, kind: str, key: str) -> bytes | None:
        value, until = self._values.get((kind, key), (None, None))
        return None if until is not None and until <= time.monotonic() else value

    def claim(self, kind: str, key: str, owner: str, ttl_s: float) -> bool:
        now = time.monotonic()
        with self._lock:
            holder, until = self._claims.get((kind, key), (owner, 0))
            if until > now:
                return holder == owner
            self._claims[kind, key] = (owner, now + ttl_s)
            return True

    def publish(self, topic: str, message: bytes) -> None:
        for known, take in self._listeners:
            if known == topic:
                take(message)

    def subscribe(
        self, topic: str, take: Callable[[bytes], None], joined: Callable[[], None] | None = None
    ) -> Subscribed:
        entry = (topic, take)
        self._listeners = (*self._listeners, entry)
        if joined is not None:
            joined()

        def close() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not entry)

        return Subscribed(close)

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass


class TroubledStore(MemoryStore):
    """Answers once it is let, and with its error as long as it has one."""

    def __init__(self, error: str | None = None) -> None:
        super().__init__()
        self.error = error
        self.let = threading.Event()
        self.let.set()
        self.asked = 0

    def _trouble(self) -> None:
        self.asked += 1
        assert self.let.wait(60)
        if self.error:
            raise StoreError(self.error)

    def records(self, tool: str) -> list[bytes]:
        self._trouble()
        return super().records(tool)

    def get(self, kind: str, key: str) -> bytes | None:
        self._trouble()
        return super().get(kind, key)
