"""Whether estimates hold, and what keeps them so."""

from __future__ import annotations

from collections import deque
from typing import Final

_LOOKED_AT: Final = 100
_LEAST: Final = -1.0
_MOST: Final = 3.0


class Calibration:
    """Follows the share of calls of one tool that stayed within their estimate.

    After a miss estimates grow a little, after a hit they shrink by a ninth of that (at 90 %), so
    that the two balance at the share that is wanted, whatever the durations are distributed like
    and even where they drift (adaptive conformal inference, Gibbs and Candès 2021).

    Attributes:
        offset: Log of the factor that estimates are multiplied by, -1 to 3.
    """

    __slots__ = ("_hits", "_newest", "_share", "_step", "offset")

    def __init__(self, share: float, step: float) -> None:
        self.offset = 0.0
        self._share = share
        self._step = step
        self._newest: deque[bool] = deque(maxlen=_LOOKED_AT)
        self._hits = 0

    @property
    def within(self) -> float | None:
        """Share of the newest 100 calls that stayed within their estimate; None before the first.

        Calls before the first record of a tool are not counted.
        """
        return self._hits / len(self._newest) if self._newest else None

    def take(self, *, within: bool) -> None:
        """Takes a call that ended, within its estimate or past it."""
        newest = self._newest
        if len(newest) == _LOOKED_AT:
            self._hits -= newest[0]
        newest.append(within)
        self._hits += within
        moved = self.offset + self._step * (self._share - within)
        self.offset = min(max(moved, _LEAST), _MOST)
