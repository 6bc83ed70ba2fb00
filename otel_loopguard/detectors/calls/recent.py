"""Rounds that showed one sign among the newest calls, whatever came of the others."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_CALLS: Final = 16


class Sign(NamedTuple):
    """A call that showed the sign.

    Attributes:
        number: Its number in the session.
        call: Its key; None if its arguments are not known.
    """

    number: int
    call: int | None


class Recent:
    """Remembers the newest rounds that showed a sign; a parallel round counts once.

    Args:
        window: Calls that are looked back at.
        most: Rounds that are remembered.
    """

    __slots__ = ("_round", "_signs", "_window")

    def __init__(self, window: int, most: int) -> None:
        self._window = window
        self._signs: deque[Sign] = deque(maxlen=most)
        self._round = -1

    def add(self, number: int, moment: int, call: int | None) -> int:
        """Counts a call; gives the rounds within the window.

        Args:
            number: Number of the call within its session.
            moment: Number of its round.
            call: Its key.
        """
        signs = self._signs
        if moment != self._round:
            signs.append(Sign(number, call))
        self._round = moment
        while signs and number - signs[0].number >= self._window:
            signs.popleft()
        return len(signs)

    @property
    def calls(self) -> frozenset[int]:
        """Keys of the newest calls that are remembered, 16 at most."""
        return frozenset(sign.call for sign in list(self._signs)[-_CALLS:] if sign.call is not None)

    @property
    def first(self) -> int:
        """Number of the oldest call that is remembered."""
        return self._signs[0].number if self._signs else 0

    @property
    def last(self) -> int:
        """Number of the newest call that is remembered."""
        return self._signs[-1].number if self._signs else 0
