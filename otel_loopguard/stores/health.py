"""How the store is: what the writer has seen of it."""

from __future__ import annotations

import logging
import time
from typing import Final, Literal, NamedTuple

from otel_loopguard.logger import logger

State = Literal["healthy", "slow", "down", "full", "read_only"]

_SAY_AGAIN_S: Final = 60


class Standing(NamedTuple):
    """How the writing goes.

    Attributes:
        state: `healthy`; `slow`: no answer in time, or late; `down`: not reached, or nobody is let
            in; `full`; `read_only`.
        why: The last trouble, in words; empty if there was none.
        waiting: Writes that wait.
        stored: Writes that the store has acknowledged.
        dropped: Writes that were given up: no room to wait, or shut down before they were stored.
        refused: Writes that can never be stored: too large, or another kind of thing is in their
            place.
        retries: Attempts that had to be made again.
    """

    state: State
    why: str
    waiting: int
    stored: int
    dropped: int
    refused: int
    retries: int


class Health:
    """Follows the calls of a store. Written by one thread, read by any.

    Args:
        slow_s: Seconds from which a call is slow.
    """

    def __init__(self, slow_s: float) -> None:
        self._slow_s = slow_s
        self._state: State = "healthy"
        self._began = 0.0
        self._said: dict[State, float] = {}
        self.why = ""

    @property
    def state(self) -> State:
        """How it is now; a call that is on its way for too long is seen, too."""
        began = self._began
        if began and self._state == "healthy" and time.monotonic() - began > self._slow_s:
            return "slow"
        return self._state

    def begins(self) -> None:
        """A call begins."""
        self._began = time.monotonic()

    def went_well(self, *, wrote: bool) -> None:
        """The call was answered.

        Args:
            wrote: Whether something was written; a store that is full can still be read.
        """
        took, self._began = time.monotonic() - self._began, 0.0
        if took > self._slow_s:
            self._becomes("slow", f"a call took {took:.2f} s")
        elif wrote or self._state in ("slow", "down"):
            self._becomes("healthy", "")

    def failed(self, state: State, why: str) -> None:
        """The call failed."""
        self._began = 0.0
        self._becomes(state, why)

    def _becomes(self, state: State, why: str) -> None:
        before, self._state = self._state, state
        self.why = why or self.why
        now = time.monotonic()
        if before == state or now - self._said.get(state, -_SAY_AGAIN_S) < _SAY_AGAIN_S:
            return
        self._said[state] = now
        level = logging.INFO if state == "healthy" else logging.WARNING
        logger.log(level, "the store is %s%s", state, f": {why}" if why else "")
