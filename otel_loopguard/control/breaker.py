"""One breaker: closed, open for a while, then half-open for one trial (E5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class BreakerState(str, Enum):
    """Whether calls pass: all of them, none, or one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"

    __str__ = str.__str__


class Standing(NamedTuple):
    """How a breaker stands at a moment.

    Attributes:
        state: Whether calls pass.
        failures: Failures in a row that counted.
        until: End of the time that it is open, nanoseconds since the epoch; 0 if it is closed.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    until: int = 0


class Record(NamedTuple):
    """What processes tell each other of a breaker.

    Attributes:
        until: End of the time that it is open, nanoseconds since the epoch; 0 if it is closed.
        at: When it was opened or closed, nanoseconds since the epoch; the later record holds.
        failures: Failures in a row that opened it.
    """

    until: int
    at: int
    failures: int


@dataclass(slots=True)
class Breaker:
    """The breaker of one tool or agent. Times are nanoseconds since the epoch. Takes no lock.

    Attributes:
        failures: Failures in a row that counted.
        until: End of the time that it is open; 0 if it is closed.
        changed: When it was opened or closed last; 0 if it never was.
        trial: Until when the trial that is under way may take; 0 if none is.
    """

    failures: int = 0
    until: int = 0
    changed: int = 0
    trial: int = 0

    def state(self, now: int) -> BreakerState:
        """Whether calls pass at `now`."""
        if not self.until:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.until else BreakerState.HALF_OPEN

    def failed(self, now: int, most: int, open_ns: int) -> bool:
        """Counts a failure; whether it opened (again). While it is open nothing changes."""
        state = self.state(now)
        if state is BreakerState.OPEN:
            return False
        self.failures += 1
        if state is BreakerState.CLOSED and self.failures < most:
            return False
        self._change(now, now + open_ns)
        return True

    def succeeded(self, now: int) -> bool:
        """Counts a success; whether that closed it. Also while it is open: the tool works."""
        self.failures = 0
        if not self.until:
            return False
        self._change(now, 0)
        return True

    def learn(self, told: Record, latest: int) -> bool:
        """Takes what another process said, if it is newer; whether that changed anything.

        Args:
            told: The other's record.
            latest: Time until which it may be open at most: a clock that is wrong shuts nothing
                for days.
        """
        if told.at <= self.changed:
            return False
        self.failures, self.changed, self.trial = told.failures, told.at, 0
        self.until = min(told.until, latest)
        return True

    @property
    def record(self) -> Record:
        """What to tell other processes."""
        return Record(self.until, self.changed, self.failures)

    def _change(self, now: int, until: int) -> None:
        self.until, self.trial = until, 0
        # Later than what it follows, also where another process' clock is ahead.
        self.changed = max(now, self.changed + 1)
