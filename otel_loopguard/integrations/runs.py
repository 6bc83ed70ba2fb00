"""Keys of runs: for those that nobody named, and which an adapter has given to spans."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import Final

from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock

_MOST: Final = 1024


class Runs:
    """One key for each run, for runs that have no id of their own.

    For a framework that gives its hooks something that is the same throughout a run, and another
    one in every run. The newest 1024 are known.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[object, str]] = OrderedDict()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def knows(self, run: object) -> bool:
        """Whether the key of a run was asked for before."""
        return id(run) in self._known

    def key_of(self, run: object) -> str:
        """The key of a run.

        Args:
            run: What stands for it; told apart by identity, and held, so that nothing else can
                come to have the same.
        """
        with self._lock:
            found = self._known.get(id(run)) or (run, f"run-{uuid.uuid4().hex}")
            self._known[id(run)] = found
            self._known.move_to_end(id(run))
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return found[1]


class Given:
    """Keys that an adapter has named spans after; the newest 1024."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def add(self, key: str) -> None:
        """Takes a key."""
        if key in self._keys:
            return
        # A dict replaced whole: readers take no lock.
        self._keys = dict.fromkeys([*self._keys, key][-_MOST:])

    def others(self, key: str | None, mine: str | None) -> bool:
        """Whether a key was given to another run than that of `mine`."""
        return mine is not None and key != mine and key in self._keys
