"""The one background thread: it wakes when something open is late, because what hangs is silent."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from otel_loopguard.faults import swallow
from otel_loopguard.rehearsal import deterministic, now, off, ticks

if TYPE_CHECKING:
    from otel_loopguard.guard import LoopGuard

_NEVER: Final = 2**63 - 1
_LONGEST_S: Final = 5.0
"""The machine's clock may be set, and sleeps with the machine: what is due is asked again."""
_SHORTEST_S: Final = 0.01
"""Looks at most a hundred times a second, however close deadlines lie."""


class Timer:
    """Ticks a guard when its next deadline comes, and sleeps while there is none.

    The thread is a daemon, is started by the first span, and is started again in the child of a
    fork. It holds the guard weakly.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = weakref.ref(guard, lambda _: self._work.set())
        self._faults = guard.faults
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._stopped = False
        self._planned = _NEVER
        self._process = 0
        ticks(self)

    def wake(self) -> None:
        """Says that a span started or ended. Cheap where no deadline comes sooner by that."""
        if deterministic():
            return
        if self._process != os.getpid():
            self._start()
        guard = self._guard()
        if guard is not None and guard.due < self._planned:
            self._work.set()

    def tick(self) -> None:
        """Ticks the guard now, on the calling thread; a test does, that moves the clock."""
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
        if self._process:
            # In the child of a fork, where another thread may have held these.
            self._lock, self._work = threading.Lock(), threading.Event()
        with self._lock:
            if self._process != os.getpid():
                self._process = os.getpid()
                self._planned = _NEVER
                threading.Thread(target=self._run, name="loopguard-timer", daemon=True).start()

    def _run(self) -> None:
        work = self._work
        while not self._stopped:
            # In this order: who brings an earlier deadline after it was asked for sets it again.
            work.clear()
            self._planned = _NEVER
            guard = self._guard()
            if guard is None:
                return
            if deterministic() or off():
                del guard
                work.wait(_LONGEST_S)
                continue
            with swallow(self._faults, "timer"):
                guard.tick(now())
            due = self._planned = guard.due
            del guard
            if self._stopped:
                return
            work.wait(None if due == _NEVER else _seconds_until(due))


def _seconds_until(due: int) -> float:
    return min(max((due - now()) / 1e9, _SHORTEST_S), _LONGEST_S)
