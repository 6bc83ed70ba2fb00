"""Writes behind: one thread talks to the store, and nobody waits for it."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.store import LogOnce, PubSub

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores.store import Store

State = Literal["healthy", "slow", "down", "full", "read_only"]

_LOG_AGAIN_S: Final = 60


class WriterStatus(NamedTuple):
    """How the writing goes, in numbers of writes."""

    state: State
    why: str  # the last trouble, in words; empty if there was none
    waiting: int
    stored: int  # the store has acknowledged them
    dropped: int  # given up: no room to wait, or shut down before they were stored
    refused: int  # can never be stored: too large, or another kind of thing is in their place
    retries: int


class Health:
    """The state of a store, from how its calls end. Written by one thread, read by any."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._state: State = "healthy"
        self._logged: dict[State, float] = {}
        self.started = 0.0  # when the call began that is under way; 0 without one
        self.why = ""

    @property
    def state(self) -> State:
        """The state now; `slow` also while a call takes too long."""
        started = self.started
        if started and self._state == "healthy" and time.monotonic() - started > self._slow_s:
            return "slow"
        return self._state

    def ended(self, error: StoreError | None, took: float, *, wrote: bool) -> None:
        """A call was answered, or failed."""
        self.started = 0.0
        if error is not None and error.reason != "refused":
            self._change(error.reason, str(error))
        elif took > self._slow_s:
            self._change("slow", f"a call took {took:.2f} s")
        elif (wrote and error is None) or self._state in ("slow", "down"):
            # What refuses answers, and is well.
            self._change("healthy", "")

    def _change(self, state: State, why: str) -> None:
        before, self._state = self._state, state
        self.why = why or self.why
        now = time.monotonic()
        if before == state or now - self._logged.get(state, -_LOG_AGAIN_S) < _LOG_AGAIN_S:
            return
        self._logged[state] = now
        level = logging.INFO if state == "healthy" else logging.WARNING
        logger.log(level, "the store is %s%s", state, f": {why}" if why else "")


class PublishedValue(NamedTuple):
    """A value that other processes are notified of."""

    value: bytes
    ttl_s: float | None  # how long it is kept; None for good
    topic: str  # where it is published, if the store has topics
    stands: Callable[[bytes], bool]  # whether the value in the store takes precedence

    def do(self, store: Store, kind: str, key: str) -> None:
        """Puts the value and publishes it, unless the one in the store takes precedence."""
        before = store.get(kind, key)
        if before is not None and self.stands(before):
            return
        store.put(kind, key, self.value, self.ttl_s)
        if isinstance(store, PubSub):
            store.publish(self.topic, self.value)


class Write(NamedTuple):
    """One pending write."""

    family: Literal["records", "journal", "value", "notice"]
    name: str  # of the tool, key of the session, or kind of the value
    key: str  # of the value
    # Records, or a function that returns them; ids and values of entries; value and seconds kept,
    # or nothing to delete; a `PublishedValue`.
    items: Any
    writes: int  # how many it counts for
    size: int  # bytes

    @property
    def place(self) -> str:
        """What it is about, for messages."""
        return " ".join(part for part in (self.family, self.name, self.key) if part)

    def made(self, faults: InternalErrors) -> Write:
        """Itself, with what was not made yet."""
        if not callable(self.items):
            return self
        items: tuple[bytes, ...] = ()
        with swallow(faults, "store"):
            items = tuple(cast("Callable[[], Sequence[bytes]]", self.items)())
        return self._replace(items=items, writes=len(items), size=sum(map(len, items)))

    def do(self, store: Store) -> None:
        """Writes it."""
        if self.family == "records":
            store.add_records(self.name, self.items)
        elif self.family == "journal":
            store.append(self.name, self.items)
        elif self.family == "notice":
            self.items[0].do(store, self.name, self.key)
        elif self.items:
            value, ttl_s = self.items
            store.put(self.name, self.key, value, ttl_s)
        else:
            store.delete(self.name, self.key)


def joined(writes: Iterable[Write]) -> list[Write]:
    """One write for each place; of several values the newest one counts."""
    places: dict[tuple[str, str, str], list[Write]] = {}
    for write in writes:
        places.setdefault((write.family, write.name, write.key), []).append(write)
    return [
        found[-1]._replace(
            writes=sum(write.writes for write in found),
            size=sum(write.size for write in found),
            items=found[-1].items
            if found[-1].family in {"value", "notice"}
            else tuple(item for write in found for item in write.items),
        )
        for found in places.values()
    ]


Ask = tuple["Callable[[Store], object]", "Callable[[object], None]", "Callable[[], None] | None"]
"""A question to the store, what takes the answer, and what is called if there is none."""
Answered = Callable[[str, float, str], None]

_IDLE_S: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_LOOK_S: Final = 0.05
_NAP_S: Final = 0.01
_SPREAD: Final = random.SystemRandom()
"""Spreads processes over time; the state of `random` is the application's."""
_BROKEN: Final = StoreError("the code of the store failed", "refused")

_URGENT: Final = frozenset({"notice", "journal"})
"""What is not gathered: a stop, and entries that their journal has gathered before."""

_Found = TypeVar("_Found")


class Writer:
    """Writes to a store on a daemon thread of its own.

    Nothing that adds to it waits, calls the network or raises. Records and values are gathered for
    `tuning.stores.delay_s`, joined by place, and written again and again, with pauses that grow up
    to `tuning.stores.retry_s`, until the store acknowledges them. Past `tuning.stores.queue` writes
    that wait, more are dropped and counted. The thread is started by the first write, ends when it
    is idle, and is started again in the child of a fork; what waits in the parent, the parent
    writes. With `direct` the store never blocks (memory): everything is done at once, with no
    thread.
    """

    def __init__(
        self, store: Store, settings: Settings, faults: InternalErrors, *, direct: bool = False
    ) -> None:
        self.store = store
        self._tuning = settings.tuning.stores
        self._faults = faults
        self._direct = direct
        # Called for every call of the store, on the thread that made it.
        self.answered: Answered | None = None
        # The thread keeps the writer while there is work: what was accepted is written.
        self._thread = BackgroundThread("store", self._turn, faults, idle_s=_IDLE_S, weak=False)
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """Starts anew in the child of a fork: what waits, the parent writes."""
        # Held for the change of a table only.
        self._lock = new_lock()
        self._health = Health(self._tuning.slow_s)
        self._log_once = LogOnce()
        self._writes: deque[Write] = deque()
        self._asks: deque[Ask] = deque()
        self._asking = self._urgent = self._hurry = self._paused = False
        self._batch: list[Write] = []
        self._pause_s = _FIRST_PAUSE_S
        # By the monotonic clock; 0: not waited for.
        self._gather_until = self._retry_at = self._ping_at = 0.0
        # Writes and bytes count as waiting until they are acknowledged or given up.
        self._waiting = self._bytes = 0
        self._stored = self._dropped = self._refused = self._retries = 0

    @property
    def state(self) -> State:
        """How the store is; see `WriterStatus.state`."""
        return self._health.state

    @property
    def standing(self) -> WriterStatus:
        """How the writing goes, counted since the start or the fork."""
        return WriterStatus(
            self._health.state, self._health.why, self._waiting, self._stored, self._dropped,
            self._refused, self._retries,
        )  # fmt: skip

    def add_records(
        self, tool: str, records: Sequence[bytes] | Callable[[], Sequence[bytes]]
    ) -> bool:
        """Adds records of a tool; False if they were dropped.

        A function is called once, on the thread, when they are written or dropped.
        """
        if callable(records):
            return self._add(Write("records", tool, "", records, 1, 0))
        size = sum(map(len, records))
        return self._add(Write("records", tool, "", tuple(records), len(records), size))

    def append(self, session: str, entries: Sequence[tuple[str, bytes]]) -> bool:
        """Adds journal entries of a session; False if they were dropped."""
        size = sum(len(entry_id) + len(value) for entry_id, value in entries)
        return self._add(Write("journal", session, "", tuple(entries), len(entries), size))

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Puts a value; False if it was dropped."""
        return self._add(Write("value", kind, key, (value, ttl_s), 1, len(value)))

    def publish(self, kind: str, key: str, published: PublishedValue) -> bool:
        """Puts and publishes a value, until both succeed; False if it was dropped.

        Of several that wait for one key it is only the newest.
        """
        return self._add(Write("notice", kind, key, (published,), 1, len(published.value)))

    def delete(self, kind: str, key: str) -> bool:
        """Deletes a value; False if that was dropped."""
        return self._add(Write("value", kind, key, (), 1, 0))

    def ask(
        self,
        read: Callable[[Store], _Found],
        then: Callable[[_Found], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Asks the store something, once, on the thread, before what waits to be written.

        What was read is given to `then`; where it could not be, `failed` is called. False if too
        many questions wait; then nothing is called.
        """
        question = (read, cast("Callable[[object], None]", then), failed)
        if self._direct:
            self._answer(question)
            return True
        with self._lock:
            if len(self._asks) >= self._tuning.queue:
                return False
            self._asks.append(question)
        self._wake()
        return True

    def flush(self, limit_s: float | None = None) -> bool:
        """Waits until everything is stored or refused, at most `store_flush_s`; whether it is.

        Not for a hook: this blocks.
        """
        if self._thread.is_current or self._is_empty():
            return self._is_empty()
        until = time.monotonic() + (self._tuning.flush_s if limit_s is None else limit_s)
        self._hurry, self._retry_at = True, 0.0
        self._thread.wake()
        while not self._is_empty() and time.monotonic() < until:
            time.sleep(_NAP_S)
        self._hurry = False
        return self._is_empty()

    def close(self, limit_s: float | None = None) -> None:
        """Flushes, drops and counts what could not be stored in time, and closes the store.

        It may be used further: the next write starts it again.
        """
        self.flush(limit_s)
        with self._lock:
            left, lost = self._waiting, [one for one in self._writes if callable(one.items)]
            self._waiting = self._bytes = 0
            self._batch = []
            self._writes.clear()
            self._asks.clear()
            self._asking = self._urgent = False
            self._gather_until = self._retry_at = self._ping_at = 0.0
            self._pause_s = _FIRST_PAUSE_S
        self._thread.stop()
        left += sum(write.made(self._faults).writes - 1 for write in lost)
        self._dropped += left
        if left:
            why = self._health.why or "there was no time"
            self._log_once.log("", f"{left} writes were given up: {why}")
        with swallow(self._faults, "store_close"), suppress(StoreError):
            self.store.close()

    def _is_empty(self) -> bool:
        return not self._waiting and not self._asks and not self._asking

    def _add(self, write: Write) -> bool:
        tuning = self._tuning
        if not write.writes:
            return True
        if write.size > tuning.value_bytes * write.writes:
            self._refuse(write, f"{write.size} bytes are too many")
            return False
        if self._direct:
            write = write.made(self._faults)
            return not write.writes or self._store(write, self._batch)
        with self._lock:
            if (
                self._waiting + write.writes > tuning.queue
                or self._bytes + write.size > tuning.queue_bytes
            ):
                self._dropped += write.writes
                return False
            self._writes.append(write)
            self._urgent = self._urgent or write.family in _URGENT
            self._waiting += write.writes
            self._bytes += write.size
        self._wake()
        return True

    def _refuse(self, write: Write, why: str) -> None:
        """Counts a write that can never be stored; its place is logged once."""
        with self._lock:
            self._refused += write.writes
        self._log_once.log(write.place, f"{write.place}: not stored: {why}")

    def _wake(self) -> None:
        # While it gathers or pauses it looks by itself: to wake it would cost each write.
        if not (self._paused and self._thread.is_running):
            self._thread.wake()

    def _turn(self) -> float | None:
        """Answers a question, then writes a batch; returns the seconds until the next turn."""
        self._paused = False
        asked = self._answer_next()
        if not (asked or self._batch or self._writes):
            return self._idle_turn()
        self._ping_at = 0.0
        wait_s = 0.0 if asked and not self._batch else self._wait_s()
        if wait_s > 0:
            self._paused = True
            return wait_s
        if not self._batch:
            self._take_batch()
        batch = self._batch
        while batch:
            if not self._store(batch[0], batch):
                if batch is self._batch:
                    pause = self._pause_s * _SPREAD.uniform(0.5, 1)
                    self._pause_s = min(2 * self._pause_s, self._tuning.retry_s)
                    self._retry_at = time.monotonic() + pause
                return 0
            self._pause_s = _FIRST_PAUSE_S
            del batch[:1]
        return 0

    def _wait_s(self) -> float:
        """Seconds until the next attempt, or until more writes had time to come."""
        now = time.monotonic()
        if self._batch:
            return self._retry_at - now
        if self._hurry or self._urgent or self._waiting >= self._tuning.batch:
            return 0
        self._gather_until = self._gather_until or now + self._tuning.delay_s
        # It looks now and then whether a batch is full.
        return min(_LOOK_S, self._gather_until - now)

    def _take_batch(self) -> None:
        """Makes the oldest writes the batch, one for each place."""
        with self._lock:
            taken: list[Write] = []
            count, most = 0, self._tuning.batch
            self._urgent, self._gather_until = False, 0.0
            while self._writes and (not taken or count + self._writes[0].writes <= most):
                taken.append(self._writes.popleft())
                count += taken[-1].writes
            self._batch = taken
        # Its source may have a lock of its own.
        made = [write.made(self._faults) for write in taken]
        with self._lock:
            if self._batch is taken:
                self._batch = joined(write for write in made if write.writes)
                self._waiting += sum(write.writes for write in made) - count
                self._bytes += sum(write.size for write in made) - sum(one.size for one in taken)

    def _idle_turn(self) -> float | None:
        """Pings a store that is not healthy; writes wait until its state improves."""
        if self._health.state == "healthy":
            return None
        now = time.monotonic()
        if now >= self._ping_at:
            if self._ping_at:
                self._answer((lambda store: store.ping(), lambda _: None, None))
            self._ping_at = now + self._tuning.retry_s
        return self._ping_at - now

    def _store(self, write: Write, batch: list[Write]) -> bool:
        """Whether a write is done with: acknowledged, refused, or given up meanwhile."""
        trouble = attempt(self._faults, "store", partial(self._call, "write"), write.do, _BROKEN)
        with self._lock:
            if batch is not self._batch:
                return False
            done = not isinstance(trouble, StoreError)
            if isinstance(trouble, StoreError) and trouble.reason != "refused":
                self._retries += 1
                return False
            self._stored += write.writes * done
            if not self._direct:
                self._waiting -= write.writes
                self._bytes -= write.size
        if isinstance(trouble, StoreError):
            self._refuse(write, str(trouble))
        return True

    def _answer_next(self) -> bool:
        """Asks the store the oldest question; False if there is none."""
        with self._lock:
            if not self._asks:
                return False
            # It counts as waiting until it is answered.
            self._asking = True
            question = self._asks.popleft()
        try:
            self._answer(question)
        finally:
            self._asking = False
        return True

    def _answer(self, question: Ask) -> None:
        read, then, failed = question
        found = attempt(self._faults, "store_read", partial(self._call, "read"), read, _BROKEN)
        if isinstance(found, StoreError):
            with swallow(self._faults, "store_answer"):
                if failed is not None:
                    failed()
        else:
            attempt(self._faults, "store_answer", then, found)

    def _call(self, operation: str, do: Callable[[Store], object]) -> object:
        """Calls the store; returns its answer, or its `StoreError`."""
        self._health.started = began = time.monotonic()
        trouble: StoreError | None = None
        found: object = None
        try:
            found = do(self.store)
        except StoreError as error:
            trouble = error
        took = time.monotonic() - began
        if self.answered is not None:
            self.answered(operation, took, trouble.reason if trouble is not None else "")
        self._health.ended(trouble, took, wrote=operation == "write")
        return trouble or found
