"""The newest successful calls of one tool, kept in order of size and of duration."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.profiling.record import CallRecord


class Window:
    """The newest calls, sorted as they come: O(log n) to find a place, no sorting anew.

    Attributes:
        rows: Size (-1 where it is not known), milliseconds and complexity, the smallest first.
        longest: Milliseconds, negative, and size: the longest first.
    """

    __slots__ = ("_most", "_order", "longest", "rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._order: deque[tuple[int, float, float]] = deque()
        self.rows: list[tuple[int, float, float]] = []
        self.longest: list[tuple[float, int]] = []

    def take(self, record: CallRecord) -> None:
        """Takes a call that went well; the oldest goes if there are too many."""
        size = -1 if record.size is None else record.size
        row = (size, record.ms, record.complexity)
        self._order.append(row)
        insort(self.rows, row)
        insort(self.longest, (-record.ms, size))
        if len(self._order) > self._most:
            self.forget()

    def forget(self) -> None:
        """Lets go of the oldest."""
        row = self._order.popleft()
        del self.rows[bisect_left(self.rows, row)]
        del self.longest[bisect_left(self.longest, (-row[1], row[0]))]
