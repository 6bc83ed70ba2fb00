"""Starts and ends of spans that wait to be judged.

A hook of the SDK only appends: it takes no lock and may run anywhere, also in a finalizer or a
signal handler that interrupts us. A caller that asks what was decided settles first, on its own
thread. A thread that holds a lock of this package, or is judging, does not settle: two guards would
wait for each other, and half-done work would change beneath it.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from otel_loopguard._util.bounded import WeakList
from otel_loopguard._util.locks import held, new_lock, settle, waiting

Event = tuple[Any, Any, Any, int, bool]
"""A span of the SDK that started or ended, what the context named there (for a start the context,
for an end the session), the call that an adapter makes, when, and whether it ended. A plain tuple,
as it is made twice for every span."""

MOST: Final = 256
"""Events after which a hook settles itself. At some 10 kB a span that holds 1 MB; a pause of an
agent, in which the timer settles, comes long before."""
_AT_ONCE: Final = 4
"""Of these a hook judges so many at a time: each adds one, so the backlog shrinks, and none takes
long. Two or sixteen take as much of the process's time; sixteen hold an agent up for 4 ms."""
_TOGETHER: Final = 64
"""Events that are read before the first of them is judged. Twice as many gain nothing."""
_PRESSED: Final = 512
"""Events after which a hook waits for the settling thread and then judges some itself: spans come
faster than they can be judged."""
_KEPT: Final = 16_384
"""Events that wait at most; the oldest are dropped if no thread may settle."""


class Judging(Protocol):
    """Judges the events of a backlog: the guard."""

    def judge_events(self, events: deque[Event]) -> None:
        """Judges and removes events in order, up to a decision that has listeners to notify.

        Raises only where faults are raised, in the project's own tests.
        """
        ...

    def publish(self) -> None:
        """Notifies listeners. No lock is held."""
        ...


class Backlog:
    """The events of one guard, in order, until a question needs them judged.

    Attributes:
        events: What waits.
        append: Adds an event. Atomic, and takes no lock.
        settling: Whether a thread judges what it has taken out.
        attended: Whether a timer is about to judge all of it.
    """

    def __init__(self, owner: Judging) -> None:
        self._owner = weakref.ref(owner)
        self.events: deque[Event] = deque(maxlen=_KEPT)
        self.append: Callable[[Event], None] = self.events.append
        self._lock = new_lock()
        self.settling = self.attended = False

    def open(self) -> None:
        """Has `settle_all` look here from now on."""
        _open.remove(self)
        _open.add(self)

    def forked(self) -> None:
        """In the child of a fork: what was not judged is the parent's."""
        self.settling = self.attended = False
        self.events.clear()

    def settle(self, most: int = _KEPT) -> None:
        """Judges what waits by now, in order; `most` events at most.

        What comes meanwhile is not waited for: other threads may make spans without end.
        """
        events, owner = self.events, self._owner()
        if not (events or self.settling) or owner is None or held():
            return
        left: int | None = None
        while True:
            # Also with nothing left: another thread may be judging what it took out.
            with self._lock:
                self.settling = True
                try:
                    # Counted here: of what the other took out it puts back what follows a decision.
                    left = self._judge(owner, min(len(events), most) if left is None else left)
                finally:
                    self.settling = False
            owner.publish()
            if left <= 0 or not (events or self.settling):
                break
        if waiting:
            settle()

    def _judge(self, owner: Judging, left: int) -> int:
        """Judges up to so many events, or up to a decision; returns how many are left."""
        events = self.events
        while left > 0 and events:
            taken = deque(events.popleft() for _ in range(min(left, len(events), _TOGETHER)))
            left -= len(taken)
            try:
                owner.judge_events(taken)
            finally:
                # What listeners do about a decision counts for what follows.
                left += len(taken)
                events.extendleft(reversed(taken))
            if taken:
                break
        return left

    def press(self) -> None:
        """Judges a few in a hook that found `MOST` events, unless another thread keeps up."""
        if len(self.events) >= _PRESSED or not (self.settling or self.attended):
            self.settle(_AT_ONCE)


_open: Final[WeakList[Backlog]] = WeakList()


def settle_all() -> None:
    """Judges what waits in any guard of this process, before one is asked."""
    for backlog in _open:
        if backlog.events or backlog.settling:
            backlog.settle()
