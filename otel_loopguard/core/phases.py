"""The phases of a run: stretches of work of one agent, one after the other."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

_KEPT: Final = 48
_SECOND: Final = 1e9


class Phase(NamedTuple):
    """One stretch of work.

    Attributes:
        name: Name of the agent that began it.
        seconds: Seconds from the start of its first step to the newest end in it; None without
            times.
    """

    name: str
    seconds: float | None


class Phases:
    """The newest 48 phases of one session.

    Attributes:
        over: Those that ended with the newest step.
    """

    __slots__ = ("_began", "_ended", "_name", "_past", "over")

    def __init__(self) -> None:
        self.over: tuple[Phase, ...] = ()
        self._past: deque[Phase] = deque(maxlen=_KEPT)
        self._name: str | None = None
        self._began = self._ended = 0

    def begin(self, name: str, start: int) -> None:
        """A phase begins, and the one before is over.

        Args:
            name: Name of the agent.
            start: Start of its first step, nanoseconds since the epoch; 0 without times.
        """
        self.end()
        self._name, self._began, self._ended = name, start, 0

    def work(self, start: int, end: int) -> None:
        """A step of an agent is over; one that began before the phase encloses it, and is no part.

        Args:
            start: Its start; 0 without times.
            end: Its end; 0 without times.
        """
        if start >= self._began:
            self._ended = max(self._ended, end)

    def end(self) -> None:
        """The phase at hand is over, if there is one."""
        if self._name is not None:
            over = Phase(self._name, self._seconds())
            self._name = None
            self._past.append(over)
            self.over = (*self.over, over)

    def now(self) -> tuple[Phase, ...]:
        """The newest phases, oldest first; one that goes on is the last."""
        going_on = () if self._name is None else (Phase(self._name, self._seconds()),)
        return (*self._past, *going_on)[-_KEPT:]

    def _seconds(self) -> float | None:
        known = self._began > 0 and self._ended >= self._began
        return (self._ended - self._began) / _SECOND if known else None
