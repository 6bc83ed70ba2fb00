"""The one background thread: it looks for calls that hang, because they emit nothing."""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from otel_loopguard.faults import swallow

if TYPE_CHECKING:
    from otel_loopguard.guard import LoopGuard

_EVERY_S: Final = 0.25


class Timer:
    """Ticks a guard four times a second while spans are open, and sleeps while none is.

    The thread is a daemon, is started by the first span, and is started again in the child of a
    fork. It holds the guard weakly.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = weakref.ref(guard)
        self._faults = guard.faults
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._stopped = False
        self._process = 0

    def wake(self) -> None:
        """Says that a span is open. Cheap while the thread is awake."""
        if self._work.is_set() and self._process == os.getpid():
            return
        if self._process != os.getpid():
            self._start()
        self._work.set()

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
                threading.Thread(target=self._run, name="loopguard-timer", daemon=True).start()

    def _run(self) -> None:
        work = self._work
        while not self._stopped:
            work.wait()
            guard = self._guard()
            if guard is None or self._stopped:
                return
            with swallow(self._faults, "timer"):
                # Cleared before it is asked: who opens a span after that sets it again.
                work.clear()
                if guard.watching:
                    work.set()
                guard.tick(time.time_ns())
            del guard
            time.sleep(_EVERY_S)
