"""Writes to a store in the background."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from otel_loopguard._util.errors import InternalErrors, Log, LogOnce, logger, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.worker import BackgroundThread, Pauses
from otel_loopguard.errors import StoreError

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores.redis import RedisStore

State = Literal["healthy", "slow", "down", "full", "read_only"]

# A store that comes and goes fills no log: each trouble is logged once a minute, with its end.
_LOG_AGAIN_S: Final = 60
# A process that stores nothing for so long has no thread for it; to start one costs little.
_IDLE_S: Final = 10
# Seconds between checks of `flush`: a write takes a millisecond at best.
_NAP_S: Final = 0.01
_BROKEN: Final = StoreError("the code of the store failed", "refused")

_Found = TypeVar("_Found")
Ask = tuple[
    "Callable[[RedisStore], object]", "Callable[[object], None]", "Callable[[], None] | None"
]
"""A question to the store, what takes the answer, and what is called if there is none."""
Answered = Callable[[str, float, str], None]
"""Takes each call of the store: operation, seconds, and the reason of its error, if any."""


class PublishedValue(NamedTuple):
    """A value that other processes are notified of."""

    value: bytes
    ttl_s: float | None  # how long it is kept; None for good
    topic: str  # where it is published
    stands: Callable[[bytes], bool]  # True if the value in the store takes precedence
    name: str = ""  # what is listed of it, if anything
    is_listed: bool = False  # whether it is from now on

    def do(self, store: RedisStore, kind: str, key: str) -> None:
        """Puts the value and publishes it, unless the one in the store takes precedence."""
        before = store.get(kind, key)
        if before is not None and self.stands(before):
            return
        if self.name:
            # A list that is somebody else's keeps no stop from its session.
            with suppress(StoreError):
                store.enlist(kind, self.name, self.ttl_s if self.is_listed else None)
        store.put(kind, key, self.value, self.ttl_s)
        store.publish(self.topic, self.value)


class Write(NamedTuple):
    """A pending write of items to one place."""

    place: str  # kind and name; writes to one place are joined, and it is named in messages
    do: Callable[[RedisStore, Sequence[Any]], object]
    items: Sequence[Any]
    size: int  # bytes
    urgent: bool = False  # a stop, or entries that their journal has gathered: not delayed
    made: bool = True  # False for one whose items are a function that returns them


def joined(writes: Iterable[Write]) -> list[Write]:
    """One write for each place, with the items of all."""
    places: dict[str, list[Write]] = {}
    for write in writes:
        places.setdefault(write.place, []).append(write)
    return [
        found[-1]._replace(
            items=[item for write in found for item in write.items],
            size=sum(write.size for write in found),
        )
        for found in places.values()
    ]


class Writer:
    """Writes to a store on a daemon thread of its own.

    Nothing that adds to it waits, calls the network or raises. Records and values are gathered for
    `tuning.stores.delay_s`, joined by place, and written again and again, with pauses that grow up
    to `tuning.stores.retry_s`, until the store acknowledges them. Past `tuning.stores.queue` writes
    that wait, more are dropped and counted. The thread starts with the first write, ends when idle,
    and starts anew in the child of a fork; what waits in the parent, the parent writes.

    Attributes:
        capacity: Writes that may wait.
        waiting: Writes that wait until they are acknowledged or given up.
        stored: Writes that the store acknowledged, since the start or the fork.
        dropped: Writes given up: no room to wait, or shut down before they were stored.
        refused: Writes that can never be stored: too large, or something else is in their place.
        retries: Attempts that failed.
        why: The last trouble of the store, in words; empty if there was none.
    """

    def __init__(
        self, store: RedisStore, settings: Settings, faults: InternalErrors, log: Log = logger
    ) -> None:
        self.store = store
        self._log = log
        self._tuning = settings.tuning.stores
        self.capacity = self._tuning.queue
        self._faults = faults
        # Called for every call of the store, on the thread that made it.
        self.answered: Answered | None = None
        # The thread keeps the writer while there is work: what was accepted is written.
        self._thread = BackgroundThread("store", self._turn, faults, idle_s=_IDLE_S, weak=False)
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Starts anew in the child of a fork: the parent writes what waits."""
        # Held for the change of a table only.
        self._lock = new_lock()
        self._log_once = LogOnce("store", self._log)
        self._state: State = "healthy"
        self._told: State = "healthy"  # the state that was logged last
        self.why = ""
        self._logged: dict[State, float] = {}
        self._call_began = 0.0  # 0 while there is none
        self.stored = self.dropped = self.refused = self.retries = 0
        self._clear()

    def _clear(self) -> None:
        self._writes: deque[Write] = deque()
        self._asks: deque[Ask] = deque()
        self._batch: list[Write] = []
        self._pauses = Pauses(self._tuning.retry_s)
        # By the monotonic clock: when the gathered writes are taken (inf: there are none), when the
        # batch is tried again, and when a store in trouble is asked how it is.
        self._due, self._retry_at, self._ping_at = inf, 0.0, 0.0
        # Writes and bytes count as waiting until they are acknowledged or given up.
        self.waiting = self._bytes = 0

    @property
    def state(self) -> State:
        """The state of the store; `slow` also while a call takes too long."""
        began = self._call_began
        if began and self._state == "healthy" and time.monotonic() - began > self._tuning.slow_s:
            return "slow"
        return self._state

    def saw(self, trouble: str) -> None:
        """Notes that a call of the store outside of the writer failed, and why (`StoreError`).

        What a full or read-only store says is left to writes, which alone find that it is over.
        """
        if self._state == "healthy" and (trouble == "slow" or trouble == "down"):  # noqa: PLR1714
            self._change(trouble, "")
            self._thread.wake()

    def add_records(self, tool: str, records: Callable[[], Sequence[bytes]]) -> bool:
        """Adds records of a tool; False if they were dropped.

        `records` is called once, on the thread, when they are written or dropped.
        """

        def do(store: RedisStore, items: Sequence[bytes]) -> None:
            store.add_records(tool, items)

        return self._add(Write(f"records {tool}", do, [records], 0, made=False))

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> bool:
        """Adds journal entries of a session; False if they were dropped."""

        def do(store: RedisStore, items: Sequence[tuple[str, bytes]]) -> None:
            store.append(session, items)

        size = sum(len(entry_id) + len(value) for entry_id, value in entries)
        return self._add(Write(f"journal {session}", do, entries, size, urgent=True))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Puts a value; False if it was dropped."""

        def do(store: RedisStore, _: object) -> None:
            store.put(kind, key, value, ttl_s)

        return self._add(Write(f"value {kind} {key}", do, [None], len(value)))

    def publish(self, kind: str, key: str, published: PublishedValue) -> bool:
        """Puts and publishes a value, until both succeed; False if it was dropped.

        Of several that wait for one key it is only the newest.
        """

        def do(store: RedisStore, _: object) -> None:
            published.do(store, kind, key)

        size = len(published.value)
        return self._add(Write(f"notice {kind} {key}", do, [None], size, urgent=True))

    def ask(
        self,
        read: Callable[[RedisStore], _Found],
        then: Callable[[_Found], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Asks the store something, once, on the thread, before pending writes.

        `then` takes what was read; where reading fails, `failed` is called. False if too many
        questions wait; then nothing is called.
        """
        with self._lock:
            if len(self._asks) >= self._tuning.queue:
                return False
            self._asks.append((read, cast("Callable[[object], None]", then), failed))
        self._thread.wake()
        return True

    def flush(self, limit_s: float | None = None) -> bool:
        """Waits until everything is stored or refused, at most `limit_s`; True if it is.

        Not for a hook: this blocks.
        """
        until = time.monotonic() + (self._tuning.flush_s if limit_s is None else limit_s)
        self._retry_at = 0.0
        while (left := bool(self.waiting or self._asks)) and not self._thread.is_current:
            # Again and again, for others may add writes meanwhile.
            with self._lock:
                self._due = 0.0 if self._writes else inf
            self._thread.wake()
            if time.monotonic() >= until:
                break
            self._thread.stand_in()
            time.sleep(_NAP_S)
        return not left

    def close(self, limit_s: float | None = None) -> None:
        """Flushes, drops and counts what could not be stored in time, and closes the store.

        It may be used further: the next write starts it again.
        """
        self.flush(limit_s)
        with self._lock:
            left, lost = self.waiting, [one for one in self._writes if not one.made]
            self._clear()
        self._thread.stop()
        left += sum(len(self._made(write).items) - 1 for write in lost)
        self.dropped += left
        if left:
            why = self.why or "there was no time"
            self._log_once.log("", f"{left} writes were given up: {why}")
        with swallow(self._faults, "store_close"), suppress(StoreError):
            self.store.close()

    def _add(self, write: Write) -> bool:
        tuning, count = self._tuning, len(write.items)
        if not count:
            return True
        if write.size > tuning.value_bytes * count:
            self._refuse(write, f"{write.size} bytes are too many")
            return False
        with self._lock:
            if self.waiting + count > tuning.queue or self._bytes + write.size > tuning.queue_bytes:
                self.dropped += count
                return False
            self._writes.append(write)
            self.waiting += count
            self._bytes += write.size
            before, due = self._due, 0.0
            if not write.urgent and self.waiting < tuning.batch:
                due = time.monotonic() + tuning.delay_s
            self._due = min(before, due)
        # A thread that gathers or pauses is not woken by each write: that would slow every write.
        if due < before or not self._thread.is_running:
            self._thread.wake()
        return True

    def _refuse(self, write: Write, why: str) -> None:
        """Counts a write that can never be stored; its place is logged once."""
        with self._lock:
            self.refused += len(write.items)
        self._log_once.log(write.place, f"{write.place}: not stored: {why}")

    def _turn(self) -> float | None:
        """Answers a question, then writes a batch; returns the seconds until the next turn."""
        self._answer_next()
        now = time.monotonic()
        if not (self._batch or self._writes):
            return 0 if self._asks else self._idle_turn(now)
        wait_s = (self._retry_at if self._batch else self._due) - now
        if wait_s > 0:
            return 0 if self._asks else wait_s
        if not self._batch:
            self._take_batch()
        batch = self._batch
        while batch:
            if not self._store(batch[0], batch):
                if batch is self._batch:
                    self._retry_at = time.monotonic() + self._pauses.next_s()
                return 0
            self._pauses.failures = 0
            del batch[:1]
        return 0

    def _take_batch(self) -> None:
        """Makes the oldest writes the batch, one for each place."""
        with self._lock:
            taken: list[Write] = []
            count, most = 0, self._tuning.batch
            while self._writes and (not taken or count + len(self._writes[0].items) <= most):
                taken.append(self._writes.popleft())
                count += len(taken[-1].items)
            self._due = 0.0 if self._writes else inf
            self._batch = taken
        # Its source may have a lock of its own.
        made = [self._made(write) for write in taken]
        with self._lock:
            if self._batch is taken:
                self._batch = joined(write for write in made if write.items)
                self.waiting += sum(len(write.items) for write in made) - count
                self._bytes += sum(write.size for write in made) - sum(one.size for one in taken)

    def _made(self, write: Write) -> Write:
        if write.made:
            return write
        items: list[bytes] = []
        with swallow(self._faults, "store"):
            items = [record for make in write.items for record in make()]
        return write._replace(items=items, size=sum(map(len, items)), made=True)

    def _idle_turn(self, now: float) -> float | None:
        """Pings a store in trouble: its state is not to stay bad because nothing is written."""
        if self._state == "healthy":
            return None
        if now >= self._ping_at:
            self._call("write", lambda store: store.ping())
        return max(self._ping_at - time.monotonic(), 0)

    def _store(self, write: Write, batch: list[Write]) -> bool:
        """True if a write is done with: acknowledged, or refused."""
        trouble = self._call("write", lambda store: write.do(store, write.items))
        with self._lock:
            if batch is not self._batch:
                return False
            done = not isinstance(trouble, StoreError)
            if isinstance(trouble, StoreError) and trouble.reason != "refused":
                self.retries += 1
                return False
            self.stored += len(write.items) * done
            self.waiting -= len(write.items)
            self._bytes -= write.size
        if isinstance(trouble, StoreError):
            self._refuse(write, str(trouble))
        return True

    def _answer_next(self) -> None:
        if not self._asks:
            return
        read, then, failed = question = self._asks[0]
        try:
            found = self._call("read", read)
            with swallow(self._faults, "store_answer"):
                if not isinstance(found, StoreError):
                    then(found)
                elif failed is not None:
                    failed()
        finally:
            # It counts as waiting until it is answered; `close` may have dropped it.
            with self._lock:
                if self._asks and self._asks[0] is question:
                    self._asks.popleft()

    def _call(
        self, operation: Literal["read", "write"], do: Callable[[RedisStore], object]
    ) -> object:
        """Calls the store; returns its answer, or a `StoreError`."""
        found: object = _BROKEN
        with swallow(self._faults, "store" if operation == "write" else "store_read"):
            self._call_began = began = time.monotonic()
            error: StoreError | None = None
            try:
                found = do(self.store)
            except StoreError as raised:
                found = error = raised
            finally:
                self._call_began = 0.0
            took = time.monotonic() - began
            if self.answered is not None:
                self.answered(operation, took, "" if error is None else error.reason)
            if error is not None and error.reason != "refused":
                self._change(error.reason, str(error))
            elif took > self._tuning.slow_s:
                self._change("slow", f"a call took {took:.2f} s")
            elif (operation == "write" and error is None) or self._state in ("slow", "down"):
                # Reads succeed on a full or read-only store; one that refuses a read still answers.
                self._change("healthy", "")
        self._ping_at = time.monotonic() + self._tuning.retry_s
        return found

    def _change(self, state: State, why: str) -> None:
        self._state = state
        self.why = why or self.why
        if state == self._told:
            return
        if state == "healthy":
            self._log.warning("the store is healthy again")
        else:
            now = time.monotonic()
            if now - self._logged.get(state, -_LOG_AGAIN_S) < _LOG_AGAIN_S:
                return
            self._logged[state] = now
            self._log.warning("the store is %s%s", state, f": {why}" if why else "")
        self._told = state
