"""Writes behind: one thread talks to the store, and nobody waits for it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.store import LogOnce, PubSub

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores.store import Store

State = Literal["healthy", "slow", "down", "full", "read_only"]

_SAY_AGAIN_S: Final = 60


class WriterStatus(NamedTuple):
    """How the writing goes.

    Attributes:
        state: `healthy`; `slow`: no answer in time, or late; `down`: not reached, or nobody is let
            in; `full`; `read_only`.
        why: The last trouble, in words; empty if there was none.
        waiting: Writes that wait.
        stored: Writes that the store has acknowledged.
        dropped: Writes that were given up: no room to wait, or shut down before they were stored.
        refused: Writes that can never be stored: too large, or another kind of thing is in their
            place.
        retries: Attempts that had to be made again.
    """

    state: State
    why: str
    waiting: int
    stored: int
    dropped: int
    refused: int
    retries: int


class Health:
    """Follows the calls of a store. Written by one thread, read by any."""

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._state: State = "healthy"
        self._began = 0.0
        self._said: dict[State, float] = {}
        self.why = ""

    @property
    def state(self) -> State:
        """How it is now; a call that is on its way for too long is seen, too."""
        began = self._began
        if began and self._state == "healthy" and time.monotonic() - began > self._slow_s:
            return "slow"
        return self._state

    def begins(self) -> None:
        """A call begins."""
        self._began = time.monotonic()

    def went_well(self, *, wrote: bool) -> None:
        """The call was answered."""
        took, self._began = time.monotonic() - self._began, 0.0
        if took > self._slow_s:
            self._becomes("slow", f"a call took {took:.2f} s")
        elif wrote or self._state in ("slow", "down"):
            self._becomes("healthy", "")

    def failed(self, state: State, why: str) -> None:
        """The call failed."""
        self._began = 0.0
        self._becomes(state, why)

    def _becomes(self, state: State, why: str) -> None:
        before, self._state = self._state, state
        self.why = why or self.why
        now = time.monotonic()
        if before == state or now - self._said.get(state, -_SAY_AGAIN_S) < _SAY_AGAIN_S:
            return
        self._said[state] = now
        level = logging.INFO if state == "healthy" else logging.WARNING
        logger.log(level, "the store is %s%s", state, f": {why}" if why else "")


Family = Literal["records", "journal", "value", "notice"]


class Told(NamedTuple):
    """A value that others are told of.

    Attributes:
        value: The value.
        ttl_s: Seconds that it is kept; None for good.
        topic: On which topic it is published; not at all where the store has none.
        stands: Whether what is in the store goes before it: then nothing happens.
    """

    value: bytes
    ttl_s: float | None
    topic: str
    stands: Callable[[bytes], bool]

    def do(self, store: Store, kind: str, key: str) -> None:
        """Puts the value and publishes it, unless what goes before it is there.

        Args:
            store: The store.
            kind: Kind of the value.
            key: Its key.

        Raises:
            StoreError: The store cannot.
        """
        before = store.get(kind, key)
        if before is not None and self.stands(before):
            return
        store.put(kind, key, self.value, self.ttl_s)
        if isinstance(store, PubSub):
            store.publish(self.topic, self.value)


class Write(NamedTuple):
    """One thing that is to be written.

    Attributes:
        family: What it is: records of a tool, entries of a journal, a value, or one that others
            are told of.
        name: Name of the tool, key of the session, or kind of the value.
        key: Key of the value.
        items: Records; ids and values of entries; value and seconds kept, or nothing to delete it;
            what others are told.
        writes: How many writes it counts for.
        size: Bytes of what is written.
    """

    family: Family
    name: str
    key: str
    items: tuple[Any, ...]
    writes: int
    size: int

    @property
    def place(self) -> str:
        """What it is about, for messages."""
        return " ".join(part for part in (self.family, self.name, self.key) if part)

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
    """The same in fewer writes: what goes to one place is one; of values the newest counts."""
    places: dict[tuple[str, str, str], list[Write]] = {}
    for write in writes:
        places.setdefault((write.family, write.name, write.key), []).append(write)
    return [_one(found) for found in places.values()]


def _one(found: list[Write]) -> Write:
    last = found[-1]
    if len(found) == 1:
        return last
    count = sum(write.writes for write in found)
    size = sum(write.size for write in found)
    if last.family in {"value", "notice"}:
        return last._replace(writes=count, size=size)
    items = tuple(item for write in found for item in write.items)
    return last._replace(items=items, writes=count, size=size)


Ask = tuple["Callable[[Store], object]", "Callable[[object], None]", "Callable[[], None] | None"]
"""A question to the store, who takes the answer, and who is told that there is none."""


class WriteQueue:
    """Writes in their order, questions, and the bell that wakes who works them off.

    What was taken off counts as waiting until `settled`.

    Attributes:
        waiting: Writes that wait.
        lock: Held for the time of a table's change only. Re-entrant: a finalizer may end a span
            while it is held.
    """

    def __init__(self, most: int, most_bytes: int, batch: int) -> None:
        self.waiting = 0
        self.lock = new_lock()
        self._most = most
        self._most_bytes = most_bytes
        self._batch = batch
        self._bytes = 0
        self._urgent = False
        self._asking = False
        self._writes: deque[Write] = deque()
        self._asks: deque[Ask] = deque()
        # A SimpleQueue may be put to by a finalizer that runs inside of its own `put`.
        self._bell: SimpleQueue[None] = SimpleQueue()

    @property
    def empty(self) -> bool:
        """Whether nothing waits, questions included, and none is being asked."""
        return not self.waiting and not self._asks and not self._asking

    @property
    def full_batch(self) -> bool:
        """Whether a whole batch waits, or something that other processes wait for."""
        return self._urgent or self.waiting >= self._batch

    def add(self, write: Write) -> bool:
        """Adds a write; False if there is no room for it."""
        with self.lock:
            if (
                self.waiting + write.writes > self._most
                or self._bytes + write.size > self._most_bytes
            ):
                return False
            self._writes.append(write)
            self._urgent = self._urgent or write.family == "notice"
            self.waiting += write.writes
            self._bytes += write.size
            return True

    def ask(self, question: Ask) -> bool:
        """Adds a question; False if there is no room for it."""
        with self.lock:
            if len(self._asks) >= self._most:
                return False
            self._asks.append(question)
            return True

    def question(self) -> Ask | None:
        """Takes the oldest question off; it counts as waiting until `answered`."""
        with self.lock:
            self._asking = bool(self._asks)
            return self._asks.popleft() if self._asks else None

    def answered(self) -> None:
        """Says that the question that was taken off is done with."""
        self._asking = False

    def take(self) -> list[Write]:
        """Takes a batch off: what goes to one place is one write."""
        with self.lock:
            taken: list[Write] = []
            count = 0
            self._urgent = False
            while self._writes and (not taken or count + self._writes[0].writes <= self._batch):
                taken.append(self._writes.popleft())
                count += taken[-1].writes
        return joined(taken)

    def clear(self) -> int:
        """Throws away what was not taken off, questions included; gives the number of writes."""
        with self.lock:
            left = list(self._writes)
            self._writes.clear()
            self._asks.clear()
            for write in left:
                self.settled(write)
        return sum(write.writes for write in left)

    def settled(self, write: Write) -> None:
        """Says that a write that was taken off is done with."""
        with self.lock:
            self.waiting -= write.writes
            self._bytes -= write.size

    def ring(self) -> None:
        """Wakes who waits for the bell, now or next."""
        self._bell.put(None)

    def rest(self, limit_s: float) -> bool:
        """Waits for the bell; False if nobody rang within the limit."""
        try:
            self._bell.get(timeout=limit_s)
        except Empty:
            return False
        return True


Answered = Callable[[str, float, str], None]

_IDLE_S: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_SPREAD: Final = random.SystemRandom()
"""Spreads processes over time; the state of `random` is the application's."""
_BROKEN: Final = StoreError("the code of the store failed", "refused")


class Worker:
    """Works off what waits for a store, on a daemon thread that ends when it is idle.

    Attributes:
        queue: What waits.
        health: How the store is.
        hurry: Whether nothing more is to be waited for: somebody flushes.
        thread: The thread, while there is one.
        stored: Writes that were acknowledged.
        dropped: Writes that were given up.
        refused: Writes that can never be stored.
        retries: Attempts that had to be made again.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        faults: InternalErrors,
        begin: Callable[[], object] | None,
        answered: Answered | None = None,
    ) -> None:
        self.queue = WriteQueue(
            settings.tuning.stores.queue,
            settings.tuning.stores.queue_bytes,
            settings.tuning.stores.batch,
        )
        self.health = Health(settings.tuning.stores.slow_s)
        self.hurry = False
        self.thread: threading.Thread | None = None
        self.stored = self.dropped = self.refused = self.retries = 0
        self._store = store
        self._settings = settings
        self._faults = faults
        self._begin = begin
        self._answered = answered or _ignored
        self._complaints = LogOnce()
        self._shift = 0
        self._idle = False

    def give_up(self) -> None:
        """Ends the thread, and counts what waits as dropped."""
        with self.queue.lock:
            self._shift += 1
            self.thread = None
            left = self.queue.waiting
            self.dropped += self.queue.clear()
        self.queue.ring()
        if left:
            why = self.health.why or "there was no time"
            self._complaints.tell("", f"{left} writes were given up: {why}")

    def refuse(self, write: Write, why: str) -> None:
        """Counts a write that can never be stored, and says so once of its place."""
        with self.queue.lock:
            self.refused += write.writes
        self._complaints.tell(write.place, f"{write.place}: not stored: {why}")

    def wake(self, *, ring: bool = False) -> None:
        """Says that there is work; starts the thread if there is none."""
        with self.queue.lock:
            if self.thread is None:
                if not self.queue.empty:
                    self._start()
            elif self._idle or ring:
                self._idle = False
                self.queue.ring()

    def _start(self) -> None:
        self._shift += 1
        given = (self._shift,)
        thread = threading.Thread(target=self._run, name="loopguard-store", args=given, daemon=True)
        self.thread = thread
        try:
            thread.start()
        except RuntimeError as fault:
            # No thread can be had now, as when the interpreter ends: the next write tries again.
            self.thread = None
            self._faults.note("store_thread", fault)

    def _run(self, shift: int) -> None:
        try:
            with swallow(self._faults, "store_begin"):
                if self._begin is not None:
                    self._begin()
            while self._works(shift):
                pass
        finally:
            with self.queue.lock:
                if shift == self._shift:
                    self.thread = None

    def _works(self, shift: int) -> bool:
        """One turn: a question, then a batch; False when the thread is to end."""
        if not self._asked() and not self._gathered():
            return self._rests(shift)
        with self.queue.lock:
            if shift != self._shift:
                return False
            batch = self.queue.take()
        for number, write in enumerate(batch):
            if not self._persist(shift, write):
                self._drop(batch[number:])
                return False
        return shift == self._shift

    def _gathered(self) -> bool:
        """Whether there is something to write, once more had time to come."""
        if self.queue.empty:
            return False
        until = time.monotonic() + self._settings.tuning.stores.delay_s
        while not (self.hurry or self.queue.full_batch) and time.monotonic() < until:
            # Nobody rings for a full batch: that would cost each write.
            self.queue.rest(min(0.05, max(0.001, until - time.monotonic())))
        return True

    def _rests(self, shift: int) -> bool:
        with self.queue.lock:
            if not self.queue.empty:
                return True
            self._idle = True
        well = self.health.state == "healthy"
        if self.queue.rest(_IDLE_S if well else self._settings.tuning.stores.retry_s):
            return shift == self._shift
        if not well and shift == self._shift:
            # So that its state is known to be better before anything is written.
            self.answer((_ping, _ignore, None))
            return True
        with self.queue.lock:
            self._idle = False
            if not self.queue.empty:
                return True
            if shift == self._shift:
                self.thread = None
            return False

    def _drop(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self.queue.settled(write)
            with self.queue.lock:
                self.dropped += write.writes

    def _persist(self, shift: int, write: Write) -> bool:
        """Writes until it is acknowledged or refused; False when the thread is to end."""
        pause = _FIRST_PAUSE_S
        while shift == self._shift:
            if self.attempt(write):
                self.queue.settled(write)
                return True
            with self.queue.lock:
                self.retries += 1
            self.queue.rest(pause * _SPREAD.uniform(0.5, 1))
            pause = min(2 * pause, self._settings.tuning.stores.retry_s)
            self._asked()
        return False

    def attempt(self, write: Write) -> bool:
        """Whether a write is done with."""
        trouble = attempt(self._faults, "store", self._written, write, _BROKEN)
        if trouble is None:
            with self.queue.lock:
                self.stored += write.writes
            return True
        if trouble is _BROKEN or trouble.reason == "refused":
            self.refuse(write, str(trouble))
            return True
        return False

    def _written(self, write: Write) -> StoreError | None:
        self.health.begins()
        began = time.monotonic()
        try:
            write.do(self._store)
        except StoreError as error:
            self._answered("write", time.monotonic() - began, error.reason)
            self._note(error)
            return error
        self._answered("write", time.monotonic() - began, "")
        self.health.went_well(wrote=True)
        return None

    def _note(self, error: StoreError) -> None:
        if error.reason == "refused":
            # It was answered, and by a store that is well.
            self.health.went_well(wrote=False)
        else:
            self.health.failed(error.reason, str(error))

    def _asked(self) -> bool:
        """Asks the store the oldest question; False if there is none."""
        question = self.queue.question()
        if question is None:
            return False
        try:
            self.answer(question)
        finally:
            self.queue.answered()
        return True

    def answer(self, question: Ask) -> None:
        """Asks the store."""
        read, then, failed = question
        found = attempt(self._faults, "store_read", self._read, read, _BROKEN)
        if isinstance(found, StoreError):
            with swallow(self._faults, "store_answer"):
                if failed is not None:
                    failed()
        else:
            attempt(self._faults, "store_answer", then, found)

    def _read(self, read: Callable[[Store], object]) -> object:
        self.health.begins()
        began = time.monotonic()
        try:
            found = read(self._store)
        except StoreError as error:
            self._answered("read", time.monotonic() - began, error.reason)
            self._note(error)
            return error
        self._answered("read", time.monotonic() - began, "")
        self.health.went_well(wrote=False)
        return found


def _ignore(_: object) -> None:
    return None


def _ignored(_operation: str, _seconds: float, _reason: str) -> None:
    return None


def _ping(store: Store) -> None:
    store.ping()


_NAP_S: Final = 0.01

_Found = TypeVar("_Found")


class Writer:
    """Takes what is to be stored, and stores it on a daemon thread of its own (E8).

    Nothing that adds to it waits, calls the network or raises. Writes are gathered for
    `tuning.stores.delay_s`, joined by place, and written again and again, with pauses that grow up
    to `tuning.stores.retry_s`, until the store acknowledges them. Past `tuning.stores.queue` writes
    that wait, more are dropped and counted. The thread is started by the first write, ends when it
    is idle, and is started again in the child of a fork; what waits in the parent, the parent
    writes.

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
        settings: Settings,
        faults: InternalErrors,
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
        reset_after_fork(self)

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
    def standing(self) -> WriterStatus:
        """How the writing goes, with counts since the start or the fork."""
        work = self._worker
        return WriterStatus(
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
            limit_s: Seconds that it waits at most; `tuning.stores.flush_s` by default.

        Returns:
            Whether everything is stored, or was refused.
        """
        work = self._worker
        if threading.current_thread() is work.thread:
            return work.queue.empty
        limit = self._settings.tuning.stores.flush_s if limit_s is None else limit_s
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
        if write.size > self._settings.tuning.stores.value_bytes * write.writes:
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
