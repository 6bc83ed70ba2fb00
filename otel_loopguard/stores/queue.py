"""What waits for the store: bounded, and nobody who adds to it waits."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from otel_loopguard.locks import new_lock
from otel_loopguard.stores.write import Write, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.stores.store import Store

Ask = tuple["Callable[[Store], object]", "Callable[[object], None]", "Callable[[], None] | None"]
"""A question to the store, who takes the answer, and who is told that there is none."""


class WriteQueue:
    """Writes in their order, questions, and the bell that wakes who works them off.

    What was taken off counts as waiting until `settled`.

    Args:
        most: Writes that wait at most.
        most_bytes: Their bytes at most.
        batch: Writes that are taken off at once at most.

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
