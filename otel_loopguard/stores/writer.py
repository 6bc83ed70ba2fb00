"""Writes behind: one thread talks to the store, and nobody else waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from otel_loopguard.errors import StoreError
from otel_loopguard.faults import swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.stores.health import Standing, State
from otel_loopguard.stores.worker import Answered, Worker
from otel_loopguard.stores.write import Write

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings.stores import StoreSettings
    from otel_loopguard.stores.store import Store
    from otel_loopguard.stores.write import Told

_NAP_S: Final = 0.01

_Found = TypeVar("_Found")


class Writer:
    """Takes what is to be stored, and stores it on a daemon thread of its own (E8).

    Nothing that adds to it waits, calls the network or raises. Writes are gathered for
    `store_delay_s`, joined by place, and written again and again, with pauses that grow up to
    `store_retry_s`, until the store acknowledges them. Past `store_queue` writes that wait, more
    are dropped and counted. The thread is started by the first write, ends when it is idle, and is
    started again in the child of a fork; what waits in the parent, the parent writes.

    Args:
        store: The store.
        settings: All that begins with `store_`.
        faults: Where faults of the store's code, and of who takes answers, are counted.
        direct: The store never blocks (memory): everything is done at once, with no thread.
        begin: Called by the thread when it starts: to keep its calls out of traces.

    Attributes:
        answered: Called with `read` or `write`, seconds and the reason of a failure (empty for
            none) for every call of the store, on the thread that made it; None: nobody is.
    """

    def __init__(
        self,
        store: Store,
        settings: StoreSettings,
        faults: Faults,
        *,
        direct: bool = False,
        begin: Callable[[], object] | None = None,
    ) -> None:
        self.store = store
        self._settings = settings
        self._faults = faults
        self._direct = direct
        self._begin = begin
        self.answered: Answered | None = None
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """Starts anew in the child of a fork."""
        self._worker = Worker(
            self.store, self._settings, self._faults, self._begin, self._was_answered
        )

    def _was_answered(self, operation: str, seconds: float, reason: str) -> None:
        if self.answered is not None:
            self.answered(operation, seconds, reason)

    @property
    def state(self) -> State:
        """How the store is; see `Standing.state`."""
        return self._worker.health.state

    @property
    def standing(self) -> Standing:
        """How the writing goes, with counts since the start or the fork."""
        work = self._worker
        return Standing(
            work.health.state,
            work.health.why,
            work.queue.waiting,
            work.stored,
            work.dropped,
            work.refused,
            work.retries,
        )

    def add_records(self, tool: str, records: Sequence[bytes]) -> bool:
        """Takes records of a tool; False if they were dropped. See `Store.add_records`."""
        size = sum(map(len, records))
        return self._take(Write("records", tool, "", tuple(records), len(records), size))

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> bool:
        """Takes journal entries of a session; False if they were dropped. See `Store.append`."""
        size = sum(len(entry_id) + len(value) for entry_id, value in entries)
        return self._take(Write("journal", session, "", tuple(entries), len(entries), size))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Takes a value; False if it was dropped. See `Store.put`."""
        return self._take(Write("value", kind, key, (value, ttl_s), 1, len(value)))

    def tell(self, kind: str, key: str, told: Told) -> bool:
        """Takes a value that others are told of; False if it was dropped.

        It is put and published again and again until both went well; of several that wait for one
        key only the newest.

        Args:
            kind: As of `Store.put`.
            key: Likewise.
            told: The value, and what is done with it.
        """
        return self._take(Write("notice", kind, key, (told,), 1, len(told.value)))

    def delete(self, kind: str, key: str) -> bool:
        """Takes a deletion; False if it was dropped. See `Store.delete`."""
        return self._take(Write("value", kind, key, (), 1, 0))

    def ask(
        self,
        read: Callable[[Store], _Found],
        then: Callable[[_Found], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Asks the store something, on the thread; asked once, before what waits to be written.

        Args:
            read: Reads from the store.
            then: Gets what was read, on the thread; at once with a store in memory.
            failed: Called instead if it could not be read.

        Returns:
            False if too many questions wait; then nothing is called.
        """

        def answered(found: Any) -> None:
            then(found)

        question = (read, answered, failed)
        if self._direct:
            self._worker.answer(question)
            return True
        if not self._worker.queue.ask(question):
            return False
        self._worker.wake()
        return True

    def flush(self, limit_s: float | None = None) -> bool:
        """Waits until everything is stored. Not for a hook: this blocks.

        Args:
            limit_s: Seconds that it waits at most; `store_flush_s` by default.

        Returns:
            Whether everything is stored, or was refused.
        """
        work = self._worker
        if threading.current_thread() is work.thread:
            return work.queue.empty
        limit = self._settings.store_flush_s if limit_s is None else limit_s
        until = time.monotonic() + limit
        work.hurry = True
        work.wake(ring=True)
        while not work.queue.empty and time.monotonic() < until:
            time.sleep(_NAP_S)
        work.hurry = False
        return work.queue.empty

    def close(self, limit_s: float | None = None) -> None:
        """Flushes, gives up and counts what could not be stored in time, and closes the store.

        It may be used further: the next write starts it again.

        Args:
            limit_s: As of `flush`.
        """
        self.flush(limit_s)
        self._worker.give_up()
        with swallow(self._faults, "store_close"), suppress(StoreError):
            self.store.close()

    def _take(self, write: Write) -> bool:
        work = self._worker
        if not write.writes:
            return True
        if write.size > self._settings.store_value_bytes * write.writes:
            work.refuse(write, f"{write.size} bytes are too many")
            return False
        if self._direct:
            return work.attempt(write)
        if not work.queue.add(write):
            with work.queue.lock:
                work.dropped += write.writes
            return False
        work.wake()
        return True
