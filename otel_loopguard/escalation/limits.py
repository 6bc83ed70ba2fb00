"""Ends escalations that nobody answers, on a thread that runs while any is open."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard.faults import swallow
from otel_loopguard.locks import Signal, new_lock
from otel_loopguard.rehearsal import now, ticks

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults

_LONGEST_S: Final = 5.0
"""The machine's clock may be set, and sleeps with the machine: what is due is asked again."""


class Watched(Protocol):
    """Has something that ends by itself."""

    @property
    def due(self) -> int | None:
        """When to call `over` next, nanoseconds since the epoch; None: not at all."""
        ...

    def over(self, now: int) -> None:
        """Ends whatever is over."""
        ...


class Limits:
    """Calls `over` when something is due. The daemon thread holds the owner weakly.

    Args:
        owner: What has limits.
        faults: Where faults are counted.
    """

    def __init__(self, owner: Watched, faults: Faults) -> None:
        self._owner = weakref.ref(owner)
        self._faults = faults
        self._lock = new_lock()
        self._work = Signal()
        self._running = False
        ticks(self)

    def tick(self) -> None:
        """Ends what is over, on the calling thread; a test does, that moves the clock."""
        owner = self._owner()
        if owner is not None:
            with swallow(self._faults, "escalation"):
                owner.over(now())

    def wake(self) -> None:
        """Says that something is new; starts the thread if there is none."""
        with self._lock:
            self._work.set()
            if self._running:
                return
            self._running = True
        thread = threading.Thread(target=self._run, name="loopguard-escalations", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:
            self._running = False
            self._faults.note("escalation", fault)

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while (wait_s := self._turn(wait_s)) is not None:
            pass

    def _turn(self, wait_s: float) -> float | None:
        """Waits, then ends what is over; gives the next wait in seconds, or None to end."""
        self._work.wait(wait_s)
        with self._lock:
            self._work.clear()
            owner = self._owner()
            if owner is None:
                self._running = False
                return None
        with swallow(self._faults, "escalation"):
            owner.over(now())
        with self._lock:
            due = owner.due
            if due is None and not self._work.is_set():
                self._running = False
                return None
        if due is None:
            return 0.0
        return min(max((due - now()) / 1e9, 0.0), _LONGEST_S)
