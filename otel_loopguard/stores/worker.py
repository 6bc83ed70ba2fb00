"""The thread that talks to the store."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard.errors import StoreError
from otel_loopguard.faults import attempt, swallow
from otel_loopguard.stores.complaints import Complaints
from otel_loopguard.stores.health import Health
from otel_loopguard.stores.queue import Ask, WriteQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_loopguard.faults import Faults
    from otel_loopguard.settings.stores import StoreSettings
    from otel_loopguard.stores.store import Store
    from otel_loopguard.stores.write import Write

Answered = Callable[[str, float, str], None]

_IDLE_S: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_SPREAD: Final = random.SystemRandom()
"""Spreads processes over time; the state of `random` is the application's."""
_BROKEN: Final = StoreError("the code of the store failed", "refused")


class Worker:
    """Works off what waits for a store, on a daemon thread that ends when it is idle.

    Args:
        store: The store.
        settings: All that begins with `store_`.
        faults: Where faults of the store's code, and of who takes answers, are counted.
        begin: Called by the thread when it starts.
        answered: Called with `read` or `write`, seconds and the reason of a failure (empty for
            none) for every call of the store, on the thread that made it.

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
        settings: StoreSettings,
        faults: Faults,
        begin: Callable[[], object] | None,
        answered: Answered | None = None,
    ) -> None:
        self.queue = WriteQueue(
            settings.store_queue, settings.store_queue_bytes, settings.store_batch
        )
        self.health = Health(settings.store_slow_s)
        self.hurry = False
        self.thread: threading.Thread | None = None
        self.stored = self.dropped = self.refused = self.retries = 0
        self._store = store
        self._settings = settings
        self._faults = faults
        self._begin = begin
        self._answered = answered or _ignored
        self._complaints = Complaints()
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
        """Says that there is work; starts the thread if there is none.

        Args:
            ring: Whether it is not to wait for more, or for the end of a pause.
        """
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
        until = time.monotonic() + self._settings.store_delay_s
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
        if self.queue.rest(_IDLE_S if well else self._settings.store_retry_s):
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
            pause = min(2 * pause, self._settings.store_retry_s)
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
