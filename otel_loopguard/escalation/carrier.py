"""Carries escalations to one channel, on a thread of its own: no channel holds another one."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard.faults import Faults, swallow
from otel_loopguard.locks import new_lock
from otel_loopguard.quiet import untraced_thread

if TYPE_CHECKING:
    from otel_loopguard.core.escalation import Escalation

_IDLE_S: Final = 5.0
_LONGEST_S: Final = 60.0

Deliver = Callable[["Escalation"], bool]
"""Delivers one escalation; False: try it again later."""


class Carrier:
    """A bounded queue in front of one channel, and the daemon thread that empties it.

    The thread starts with the first escalation and ends when it was idle for some seconds. What
    throws is counted, and not tried again. What hangs holds only what waits behind it.

    Args:
        name: Name of the channel, for threads and counts of faults.
        deliver: Delivers one.
        faults: Where faults are counted.
        most: Escalations that wait at most.
        attempts: Tries of one at most.
        retry_s: Seconds before the second try; each next pause is twice as long, 60 at most.

    Attributes:
        settled: Escalations that were delivered, or refused for good.
        dropped: The others: no room, no try left, or over meanwhile.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Deliver, faults: Faults, *, most: int, attempts: int = 1,
        retry_s: float = 1,
    ) -> None:  # fmt: skip
        self._name = name
        self._deliver = deliver
        self._faults = faults
        self._most = most
        self._attempts = attempts
        self._retry_s = retry_s
        self._number = 0
        self._waiting: list[tuple[float, int, int, Escalation]] = []
        self._work = threading.Condition(new_lock())
        self._running = False
        self.settled = 0
        self.dropped = 0

    def take(self, escalation: Escalation) -> bool:
        """Queues an escalation; False if there is no room."""
        with self._work:
            if len(self._waiting) >= self._most:
                self.dropped += 1
                return False
            self._push(time.monotonic(), 1, escalation)
            if self._running:
                self._work.notify()
                return True
            self._running = True
        thread = threading.Thread(target=self._run, name=f"loopguard-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:
            # No thread can be had now, as when the interpreter ends: the next one tries again.
            self._running = False
            self._faults.note(self._name, fault)
        return True

    def _push(self, due: float, attempt: int, escalation: Escalation) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (due, self._number, attempt, escalation))

    def _run(self) -> None:
        untraced_thread()
        while (found := self._next()) is not None:
            attempt, escalation = found
            done = True
            with swallow(self._faults, self._name):
                done = self._deliver(escalation)
                self.settled += done
            if not done:
                self._again(attempt, escalation)

    def _next(self) -> tuple[int, Escalation] | None:
        """What is to be delivered next, waited for; None when the thread is to end."""
        idle_until = time.monotonic() + _IDLE_S
        with self._work:
            while True:
                now = time.monotonic()
                due = self._waiting[0][0] if self._waiting else idle_until
                if due > now:
                    self._work.wait(due - now)
                elif self._waiting:
                    _, _, attempt, escalation = heapq.heappop(self._waiting)
                    return attempt, escalation
                else:
                    self._running = False
                    return None

    def _again(self, attempt: int, escalation: Escalation) -> None:
        pause = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_S)
        over = time.time_ns() + pause * 1e9 >= escalation.until
        with self._work:
            if attempt >= self._attempts or over or len(self._waiting) >= self._most:
                self.dropped += 1
            else:
                self._push(time.monotonic() + pause, attempt + 1, escalation)
