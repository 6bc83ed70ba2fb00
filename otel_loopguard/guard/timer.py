"""The background thread that finds hanging spans, which emit nothing by themselves."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.clock import deterministic, now, off, ticks
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import (
    Signal,
    new_lock,
    reset_after_fork,
    settle,
    start_thread,
    wake_by,
)
from otel_loopguard.sessions.active import NEVER

if TYPE_CHECKING:
    from otel_loopguard.guard.guard import LoopGuard

_LONGEST_S: Final = 5.0
"""Longest sleep: the machine's clock may be set, and stops while the machine sleeps."""
_SHORTEST_S: Final = 0.01
"""Shortest sleep: at most a hundred ticks a second, however close deadlines are."""
TOGETHER_S: Final = 0.02
"""Seconds that spans wait for others to be judged with: done for many in a row, it costs half. A
call that hangs is noticed as much later at most, and a crash loses as much at most. A model call
takes longer, so that an agent that asks after it finds nothing left to do."""
_SLICE: Final = 32
"""Events after which the thread gives way to others: three milliseconds. The interpreter switches
after five by itself, and fewer events read at a time cost more each."""


class WatchdogThread:
    """Ticks a guard at its next deadline, and sleeps while there is none.

    The thread is a daemon. The first span starts it, also in the child of a fork. It holds the
    guard weakly.

    Attributes:
        idle: Whether it looks at nothing in a moment: who adds to the backlog has to wake it.
        process: Id of the process that started it; 0 before and after, and in the child of a fork.
    """

    def __init__(self, guard: LoopGuard) -> None:
        # Without a callback, which could run during interpreter shutdown.
        self._guard = weakref.ref(guard)
        self._faults = guard.faults
        self._lock = new_lock()
        self._work = Signal()
        self._stopped = False
        self.process = 0
        self.idle = True
        self._registered = False
        ticks(self)
        reset_after_fork(self)

    def forked(self) -> None:
        """Resets in the child of a fork, which has no such thread."""
        self._lock, self._work, self.process = new_lock(), Signal(), 0
        self.idle = True

    def wake(self) -> None:
        """Wakes the thread, as something waits; starts it where there is none."""
        self.idle = False  # first: a thread that ends meanwhile says that it is idle
        if not self.process:
            self._start()
            # Where none can be had, the next span tries again.
            self.idle = not self.process
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
                if not self._registered:
                    # With the first span, and so called before the providers shut themselves down.
                    self._registered = True
                    atexit.register(_at_exit, self._guard)
                wake_by(self._work)
                if start_thread("timer", self._run, self._work):
                    self.process = os.getpid()

    def _run(self, work: Signal) -> None:
        try:
            self._watch(work)
        finally:
            # A listener may end it, as `sys.exit()` does: the next span starts another.
            if work is self._work:
                self.process, self.idle = 0, True

    def _watch(self, work: Signal) -> None:
        while not self._stopped:
            # Cleared first: what arrives after this sets it again.
            work.clear()
            with swallow(self._faults, "timer"):
                settle()
            guard = self._guard()
            if guard is None:
                return
            if deterministic() or off():
                del guard
                self.idle = True
                work.wait(_LONGEST_S)
                continue
            with swallow(self._faults, "timer"):
                self._settle(guard)
                guard.tick(now())
            due = guard.due
            # In this order: who adds to the backlog after this wakes the thread.
            self.idle = True
            waits = bool(guard.backlog.events)
            del guard
            if self._stopped:
                return
            if waits:
                self.idle = False
                work.wait(TOGETHER_S)
                continue
            # Wakes now and then to check that the guard still exists.
            if work.wait(_LONGEST_S if due == NEVER else _seconds_until(due)):
                # Something began to wait: soon others wait with it.
                time.sleep(TOGETHER_S)

    @staticmethod
    def _settle(guard: LoopGuard) -> None:
        """Judges what waits by now, a few events at a time."""
        backlog = guard.backlog
        left, backlog.attended = len(backlog.events), True
        try:
            while left > 0:
                backlog.settle(_SLICE)
                left -= _SLICE
                # Who waits for the interpreter gets it.
                time.sleep(0)
        finally:
            backlog.attended = False


def _at_exit(reference: weakref.ref[LoopGuard]) -> None:
    guard = reference()
    if guard is not None:
        with swallow(guard.faults, "timer"):
            guard.settle()
            guard.telemetry.close()


def _seconds_until(due: int) -> float:
    return min(max((due - now()) / 1e9, _SHORTEST_S), _LONGEST_S)
