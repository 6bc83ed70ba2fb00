"""Which guards there are in this process: the default one, and those that are fed live."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from otel_loopguard.locks import new_lock, settle

_Guard = TypeVar("_Guard")


class Guards(Generic[_Guard]):
    """The guards of a process. Thread-safe."""

    def __init__(self) -> None:
        self._attached: weakref.WeakSet[_Guard] = weakref.WeakSet()
        self._off: weakref.WeakSet[_Guard] = weakref.WeakSet()
        self._default: _Guard | None = None
        self._making = new_lock()

    def default(self, make: Callable[[], _Guard]) -> _Guard:
        """The default guard, made on first use."""
        with self._making:
            if self._default is None:
                self._default = make()
            found = self._default
        settle()
        return found

    def attach(self, guard: _Guard) -> None:
        """Says that a live span processor feeds a guard; it is held weakly."""
        self._attached.add(guard)

    @property
    def attached(self) -> tuple[_Guard, ...]:
        """Every guard that a live span processor feeds, or did until it was shut down."""
        return tuple(self._attached)

    def switch_off(self, guard: _Guard) -> None:
        """Says that a processor of a guard was made that is switched off; it is held weakly."""
        self._off.add(guard)

    @property
    def any_off(self) -> bool:
        """Whether there is a guard whose processor is switched off."""
        return bool(self._off)
