"""Rounds: calls that ran in parallel share one."""

from __future__ import annotations

from typing import Final

_HOUR: Final = 3_600_000_000_000


class Rounds:
    """Numbers the rounds of one session by the times of its calls."""

    __slots__ = ("_end", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._end = 0

    def of(self, start: int, end: int) -> int:
        """Number of the round; a clock that jumped by an hour or more begins a new one."""
        if not start or not -_HOUR < start - self._end < 0:
            self._number += 1
            self._end = end
        else:
            self._end = max(self._end, end)
        return self._number
