"""When something has to be looked at: a heap of times."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

_Subject = TypeVar("_Subject")

NEVER: Final = 2**63 - 1
"""A time that does not come, nanoseconds since the epoch."""
_SLACK: Final = 64


class Ticket(Generic[_Subject]):
    """One entry of the heap.

    Attributes:
        due: When its subject is to be looked at, nanoseconds since the epoch.
        subject: What is to be looked at; None once it was dropped or taken.
    """

    __slots__ = ("due", "subject")

    def __init__(self, due: int, subject: _Subject) -> None:
        self.due = due
        self.subject: _Subject | None = subject


class Deadlines(Generic[_Subject]):
    """Times at which subjects are to be looked at, the earliest first. O(log n) per entry.

    What is dropped leaves a small ticket behind; when those are more than half, the heap is made
    anew, so that it stays within twice the number of live entries. Not thread-safe.

    Attributes:
        top: No live entry is due before this, nanoseconds since the epoch; `NEVER` if none is
            there. May be read without a lock.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ticket[_Subject]]] = []
        self._order = 0
        self._dead = 0
        self.top = NEVER

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def add(self, due: int, subject: _Subject) -> Ticket[_Subject]:
        """Takes a subject that is to be looked at.

        Args:
            due: When, nanoseconds since the epoch.
            subject: What.
        """
        ticket = Ticket(due, subject)
        self._order += 1
        entry = (due, self._order, ticket)
        heappush(self._heap, entry)
        self.top = self._heap[0][0]
        return ticket

    def drop(self, ticket: Ticket[_Subject] | None) -> None:
        """Nobody has to look at the subject of a ticket any more."""
        if ticket is None or ticket.subject is None:
            return
        ticket.subject = None
        self._dead += 1
        if self._dead > _SLACK and self._dead * 2 > len(self._heap):
            self._sweep()
        self._clean()

    def pop(self, now: int) -> tuple[int, _Subject] | None:
        """Time and subject of the earliest entry that is due; None if none is.

        Args:
            now: Nanoseconds since the epoch.
        """
        self._clean()
        if self.top > now or not self._heap:
            return None
        due, _, ticket = heappop(self._heap)
        subject, ticket.subject = ticket.subject, None
        self._clean()
        return None if subject is None else (due, subject)

    def _sweep(self) -> None:
        # A finalizer may end or start a span in here: what it adds lands in the new heap.
        old, self._heap = self._heap, []
        live = [entry for entry in old if entry[2].subject is not None]
        self._heap.extend(live)
        heapify(self._heap)
        self._dead -= len(old) - len(live)

    def _clean(self) -> None:
        heap = self._heap
        while heap and heap[0][2].subject is None:
            heappop(heap)
            self._dead -= 1
        self.top = heap[0][0] if heap else NEVER
