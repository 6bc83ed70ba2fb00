"""State that is made anew in the child of a fork."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from otel_loopguard._util.locks import new_lock


class Forked(Protocol):
    """Has locks or tables that other threads of the parent may have held."""

    def forked(self) -> None:
        """Makes them anew; called in the child, before anything else."""
        ...


def reset_after_fork(owner: Forked) -> None:
    """Calls `owner.forked()` in every child of a fork, as long as the owner lives."""
    _owners.add(owner)


class _Owners:
    """Owners in the order in which they were made, held weakly.

    What is registered with the interpreter stays for good: a process may make a million guards.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._references: list[weakref.ref[Forked]] = []
        self._most = _LEAST

    def add(self, owner: Forked) -> None:
        with self._lock:
            if len(self._references) >= self._most:
                self._references = [known for known in self._references if known() is not None]
                self._most = 2 * len(self._references) + _LEAST
            self._references.append(weakref.ref(owner))

    def forked(self) -> None:
        for known in tuple(self._references):
            owner = known()
            if owner is not None:
                owner.forked()


_LEAST: Final = 64
_owners: Final = _Owners()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_owners.forked)
