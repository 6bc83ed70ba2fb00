"""Who is called whenever the flag of a session changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.control.flag import Flag


class Watchers:
    """Those who are told of every change of every flag. Nothing here takes a lock."""

    def __init__(self) -> None:
        # Changed by single operations of a dict: `drop` is called by weak references' callbacks.
        self._known: dict[Callable[[Flag], None], None] = {}

    def add(self, watcher: Callable[[Flag], None]) -> None:
        """Has something called whenever a flag changes, on the thread that changes it.

        Args:
            watcher: Called with the flag, whose `control` is new. It must be quick, and must not
                raise.
        """
        self._known[watcher] = None

    def drop(self, watcher: Callable[[Flag], None]) -> None:
        """Ends what `add` began."""
        self._known.pop(watcher, None)

    def tell(self, flag: Flag) -> None:
        """A flag has changed."""
        for watcher in tuple(self._known):
            watcher(flag)


WATCHERS = Watchers()
"""Those of this process."""
