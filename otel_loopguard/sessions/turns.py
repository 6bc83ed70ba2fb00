"""The runs of agents in one session: which are open, and whether the next is a user's turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = 256


class Turns:
    """Tells a user's turn from what only happens inside of one. O(open runs) per run.

    A turn begins with a run of an agent, after another one has ended, where none is open in the
    session: beside an open run it is a sub-agent. Where no run called a tool, and tools were called
    between the runs, the loop is one of the user's own, which asks its model by an agent: then a
    run is no turn.

    Attributes:
        over: Whether a run has ended since the last one began.
        calls: Tool calls since the last run began that were made while one was open.
    """

    __slots__ = ("_between", "_open", "_told", "calls", "over")

    def __init__(self) -> None:
        self.over = False
        self.calls = 0
        self._between = 0
        self._told = False
        self._open: list[int] = []

    def begins(
        self, span_id: int, is_open: Callable[[int], bool], *, told: bool = False
    ) -> bool | None:
        """A run begins that has none above it.

        Args:
            span_id: Its span.
            is_open: Says whether a span is open.
            told: Whether only an adapter tells of it, so that nobody says when it ends.

        Returns:
            Whether it is a user's turn; None for a run beside an open one, which is a sub-agent.
        """
        if span_id in self._open and is_open(span_id):
            return None
        still = [one for one in self._open if is_open(one)]
        self.over = self.over or len(still) < len(self._open)
        self._open = [*still, span_id][-_MOST:]
        if still:
            return None
        # What an adapter told of just now is the run of this span.
        same = self._told and not told and not self.calls
        turn = self.over and not same and (self.calls > 0 or not self._between)
        self.over, self._told = False, told
        self.calls = self._between = 0
        return turn

    def began(self) -> None:
        """What was seen until now was a run, which nobody told at its start."""
        if not self._open:
            self.over, self._between = True, 0

    def ends(self, span_id: int, *, run: bool) -> None:
        """A span ended that was taken for a run.

        Args:
            span_id: The span.
            run: Whether it was one.
        """
        if span_id in self._open:
            self._open.remove(span_id)
            self.over = self.over or (run and not self._open)

    def called(self, is_open: Callable[[int], bool]) -> None:
        """A tool was called.

        Args:
            is_open: Says whether a span is open.
        """
        if self._told or any(is_open(one) for one in self._open):
            self.calls += 1
        else:
            self._between += 1

    def entered(self) -> bool:
        """Somebody enters the session anew; whether that is after a run, and outside of any."""
        return self.over and not self._open
