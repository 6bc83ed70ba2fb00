"""Objects that the process knows for as long as they live."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

from otel_loopguard._util.locks import new_lock

_Item = TypeVar("_Item")


class WeakList(Generic[_Item]):
    """Holds objects weakly, in the order in which they came; who reads it takes no lock."""

    def __init__(self) -> None:
        # A tuple replaced whole.
        self._known: tuple[weakref.ref[_Item], ...] = ()
        self._lock = new_lock()

    def add(self, item: _Item) -> None:
        """Adds an object, as the last one."""
        with self._lock:
            self._known = (*(one for one in self._known if one() is not None), weakref.ref(item))

    def remove(self, item: _Item) -> None:
        """Takes an object out before it is gone."""
        with self._lock:
            self._known = tuple(one for one in self._known if one() not in (None, item))

    def __bool__(self) -> bool:
        return bool(self._known)

    def __iter__(self) -> Iterator[_Item]:
        return (found for one in self._known if (found := one()) is not None)
