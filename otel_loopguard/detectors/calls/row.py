"""A count that grows by one a round and leaks in between."""

from __future__ import annotations


class Row:
    """Counts signs of trouble; a parallel round counts once.

    Attributes:
        count: What is counted now.
    """

    __slots__ = ("_round", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self._round = -1

    def add(self, number: int) -> float:
        """Counts a call of a round; gives what is counted now.

        Args:
            number: Number of the round.
        """
        self.count += number != self._round
        self._round = number
        return self.count

    def leak(self, left: float) -> None:
        """Leaves a part of what was counted; 0 for nothing."""
        self.count *= left
