"""A count that grows by one a round and leaks in between."""

from __future__ import annotations

from typing import Final

_AGENTS: Final = 32
ITEM: Final = 0.22
"""What an item that is not there weighs, among many that are asked for: 14 make three."""


class Rows:
    """A row for each agent: what one does says nothing of another."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    def of(self, agent: int) -> Row:
        """The row of an agent; of more than 32 the one that began first is forgotten.

        Args:
            agent: Key of the agent; 0 if it is not known.
        """
        row = self._rows.get(agent)
        if row is None:
            row = self._rows[agent] = Row()
            if len(self._rows) > _AGENTS:
                del self._rows[next(iter(self._rows))]
        return row

    def leak(self, left: float) -> None:
        """Leaves a part of what was counted of every agent."""
        for row in self._rows.values():
            row.leak(left)


class Row:
    """Counts signs of trouble; a parallel round counts once.

    Attributes:
        count: What is counted now.
    """

    __slots__ = ("_round", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self._round = -1

    def add(self, number: int, weight: float = 1.0) -> float:
        """Counts a call of a round; gives what is counted now.

        Args:
            number: Number of the round.
            weight: What it counts.
        """
        if number != self._round:
            self.count += weight
        self._round = number
        return self.count

    def leak(self, left: float) -> None:
        """Leaves a part of what was counted; 0 for nothing."""
        self.count *= left
