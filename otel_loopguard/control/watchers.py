"""Who is called whenever the flag of a session changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from otel_loopguard.forks import renew_after_fork

if TYPE_CHECKING:
    from otel_loopguard.control.flag import Flag


class Watchers:
    """Those who are told of every change of every flag; who tells takes no lock."""

    def __init__(self) -> None:
        self._known: tuple[Callable[[Flag], None], ...] = ()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        # Re-entrant: a finalizer may take a watcher away while it is held.
        self._lock = threading.RLock()

    def add(self, watcher: Callable[[Flag], None]) -> None:
        """Has something called whenever a flag changes, on the thread that changes it.

        Args:
            watcher: Called with the flag, whose `control` is new. It must be quick, and must not
                raise.
        """
        with self._lock:
            self._known = (*self._known, watcher)

    def drop(self, watcher: Callable[[Flag], None]) -> None:
        """Ends what `add` began."""
        with self._lock:
            self._known = tuple(known for known in self._known if known != watcher)

    def tell(self, flag: Flag) -> None:
        """A flag has changed."""
        for watcher in self._known:
            watcher(flag)


WATCHERS = Watchers()
"""Those of this process."""
