"""One of so many: for what would cost too much each time."""

from __future__ import annotations

from typing import Final

_FIRST: Final = 64


class Sampling:
    """Says yes to the first 64, then to one of so many. Takes no lock: a lost count does no harm.

    Args:
        every: One of how many.
    """

    __slots__ = ("_every", "_first", "_left")

    def __init__(self, every: int) -> None:
        self._every = every
        self._first = _FIRST
        self._left = 1

    def hit(self) -> bool:
        """Whether this one is to be looked at."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._first > 0:
            self._first -= 1
            self._left = 1
        else:
            self._left = self._every
        return True
