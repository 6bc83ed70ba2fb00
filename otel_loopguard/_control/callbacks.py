"""Callbacks of the application: told of every decision, on a thread of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.errors import swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import Signal, new_lock, start_thread

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision

_MOST: Final = 1000


class _Listener:
    """One callback, what it has not heard yet, and the thread that calls it."""

    def __init__(self, callback: Callable[[Decision], object], session: str | None) -> None:
        self._callback = callback
        self._session = session
        self._waiting: deque[tuple[Decision, InternalErrors]] = deque(maxlen=_MOST)
        self._stopped = False
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the thread is not here, and the lock may be held."""
        self._lock = new_lock()
        self._work = Signal()
        self._started = False

    def hear(self, decision: Decision, faults: InternalErrors) -> None:
        """Has the callback told, soon. Does not wait; of more than 1000 the oldest are lost."""
        if self._session not in {None, decision.session}:
            return
        if len(self._waiting) == _MOST:
            faults.note("on_decision", OverflowError(f"{self._callback!r:.200} is too slow"))
        self._waiting.append((decision, faults))
        with self._lock:
            if not self._started:
                self._started = start_thread("listener", self._run)
        self._work.set()

    def stop(self) -> None:
        """Ends the thread; what waits is not told."""
        self._stopped = True
        self._waiting.clear()
        self._work.set()

    def _run(self) -> None:
        work = self._work
        while not self._stopped:
            work.wait()
            work.clear()
            while self._waiting:
                decision, faults = self._waiting.popleft()
                with swallow(faults, "on_decision"):
                    self._callback(decision)


_listeners: tuple[_Listener, ...] = ()
_changing = new_lock()


def on_decision(
    callback: Callable[[Decision], object], *, session: str | None = None
) -> Callable[[], None]:
    """Has a callback told of every decision of every guard in this process.

    It is called on a thread of its own, one decision after the other: what it does holds nobody
    up. What it raises is logged and counted. Of more than 1000 decisions that wait for it the
    oldest are lost, and counted.

    ::

        stop_listening = control.on_decision(lambda decision: page_somebody(decision.message))

    Args:
        callback: Called with a `Decision`.
        session: Key of a session; all by default.

    Returns:
        A function that ends it.
    """
    global _listeners  # noqa: PLW0603
    listener = _Listener(callback, session)
    # A tuple replaced whole: who tells takes no lock.
    with _changing:
        _listeners = (*_listeners, listener)

    def forget() -> None:
        global _listeners  # noqa: PLW0603
        with _changing:
            _listeners = tuple(one for one in _listeners if one is not listener)
        listener.stop()

    return forget


def tell_listeners(decision: Decision, faults: InternalErrors) -> None:
    """Tells every callback of a decision, soon."""
    for listener in _listeners:
        listener.hear(decision, faults)
