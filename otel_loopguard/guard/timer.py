"""The background thread that finds hanging spans, which emit nothing by themselves."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.clock import deterministic, now, off, ticks
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import Signal, new_lock, settle, start_thread, wake_by

if TYPE_CHECKING:
    from otel_loopguard.guard.guard import LoopGuard

_NEVER: Final = 2**63 - 1
_LONGEST_S: Final = 5.0
"""Longest sleep: the machine's clock may be set, and stops while the machine sleeps."""
_SHORTEST_S: Final = 0.01
"""Shortest sleep: at most a hundred ticks a second, however close deadlines are."""


class WatchdogThread:
    """Ticks a guard at its next deadline, and sleeps while there is none.

    The thread is a daemon. The first span starts it, also in the child of a fork. It holds the
    guard weakly.

    Attributes:
        planned: When it ticks next, nanoseconds since the epoch.
        process: Id of the process that started it; 0 before, and in the child of a fork.
    """

    def __init__(self, guard: LoopGuard) -> None:
        # Without a callback, which could run during interpreter shutdown.
        self._guard = weakref.ref(guard)
        self._faults = guard.faults
        self._lock = new_lock()
        self._work = Signal()
        self._stopped = False
        self.planned = _NEVER
        self.process = 0
        ticks(self)
        reset_after_fork(self)

    def forked(self) -> None:
        """Resets in the child of a fork, which has no such thread."""
        self._lock, self._work, self.process = new_lock(), Signal(), 0

    def wake(self) -> None:
        """Wakes the thread for an earlier deadline; starts it in a new process."""
        if not self.process:
            if deterministic():
                return
            self._start()
        guard = self._guard()
        if guard is not None and guard.due < self.planned:
            self._work.set()

    def tick(self) -> None:
        """Ticks the guard now, on the calling thread; for tests that move the clock."""
        guard = self._guard()
        if guard is not None and not self._stopped:
            with swallow(self._faults, "timer"):
                guard.tick(now())

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped = True
        self._work.set()

    def _start(self) -> None:
        if self._stopped:
            return
        with self._lock:
            if not self.process:
                self.planned = _NEVER
                wake_by(self._work)
                if start_thread("timer", self._run, self._work):
                    self.process = os.getpid()

    def _run(self, work: Signal) -> None:
        while not self._stopped:
            # Cleared first: an earlier deadline that arrives after this sets it again.
            work.clear()
            settle()
            self.planned = _NEVER
            guard = self._guard()
            if guard is None:
                return
            if deterministic() or off():
                del guard
                work.wait(_LONGEST_S)
                continue
            with swallow(self._faults, "timer"):
                guard.tick(now())
            due = self.planned = guard.due
            del guard
            if self._stopped:
                return
            # Wakes now and then to check that the guard still exists.
            work.wait(_LONGEST_S if due == _NEVER else _seconds_until(due))


def _seconds_until(due: int) -> float:
    return min(max((due - now()) / 1e9, _SHORTEST_S), _LONGEST_S)
