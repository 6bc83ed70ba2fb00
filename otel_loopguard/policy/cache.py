"""Values by key in memory, and the same in a store behind it, brought and written off the hot path.

Source: FEATURES A6. What was not understood is used as far as it was, and never overwritten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from otel_loopguard.stores import Store

_Value = TypeVar("_Value")
_AGAIN_S: Final = 30
"""Seconds after which a store that failed is asked for the same key again."""

_WARNED: Final = 256


class Keeping(Protocol):
    """What reads and writes a store off the hot path: the writer of a guard."""

    def ask(
        self,
        read: Callable[[Store], Any],
        then: Callable[[Any], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Has something read, and hands over what came of it; False if too much waits."""
        ...

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Has a value written; False if it was dropped."""
        ...


@dataclass(frozen=True)  # a NamedTuple cannot be generic on Python 3.10
class Found(Generic[_Value]):
    """What the bytes of a store came to.

    Attributes:
        value: What was understood.
        problems: What was not, one sentence each.
    """

    value: _Value
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binding(Generic[_Value]):
    """How values of one kind are read and written.

    Attributes:
        kind: Kind of the store (`preference`, `choice`).
        read: Turns bytes into a value; raises nothing.
        write: Turns a value into bytes.
        merge: Puts the value of memory (first) and that of the store together.
    """

    kind: str
    read: Callable[[bytes], Found[_Value]]
    write: Callable[[_Value], bytes]
    merge: Callable[[_Value, _Value], _Value]


class _Entry(Generic[_Value]):
    """One value, and whether the store's word on it was heard (`known`) and understood."""

    __slots__ = ("asked", "foreign", "known", "unsaved", "value")

    def __init__(self) -> None:
        self.value: _Value | None = None
        self.asked = 0.0
        self.known = False
        self.foreign = False
        self.unsaved = False


class Cache(Generic[_Value]):
    """The newest `most` values of one kind. Thread-safe; no caller waits for the store.

    Args:
        binding: How they are read and written.
        most: How many are kept in memory; the one unused for longest goes.
        keeping: Reads and writes the store behind it; None: memory only.
    """

    def __init__(self, binding: Binding[_Value], most: int, keeping: Keeping | None = None) -> None:
        self._binding = binding
        self._most = most
        self._keeping = keeping
        self._warned: set[str] = set()
        self._entries: OrderedDict[str, _Entry[_Value]] = OrderedDict()
        self.forked()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock; the values stay."""
        self._lock = new_lock()

    def get(self, key: str) -> _Value | None:
        """The value of a key as it is known here; the store is asked for it in the background."""
        entry = self._entries.get(key)
        if self._keeping is None:
            return None if entry is None else entry.value
        with self._lock:
            entry = self._entry(key)
            asks = not entry.known and self._due(entry)
        if asks:
            self._ask(key)
        return entry.value

    def set(self, key: str, value: _Value) -> None:
        """Keeps a value and has it stored, as soon as what the store has is known."""
        with self._lock:
            entry = self._entry(key)
            entry.value = value
            entry.unsaved = True
            asks = not entry.known and self._due(entry)
        if asks:
            self._ask(key)
        self._save(key, entry)

    def _entry(self, key: str) -> _Entry[_Value]:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry[_Value]()
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        return entry

    def _due(self, entry: _Entry[_Value]) -> bool:
        """Whether it is time to ask the store; then it counts as asked."""
        if self._keeping is None:
            return False
        now = time.monotonic()
        if entry.asked and now - entry.asked < _AGAIN_S:
            return False
        entry.asked = now
        return True

    def _ask(self, key: str) -> None:
        if self._keeping is not None:
            kind = self._binding.kind
            self._keeping.ask(lambda store: store.get(kind, key), lambda raw: self._take(key, raw))

    def _take(self, key: str, raw: bytes | None) -> None:
        """Takes in what the store has of a key, on whichever thread read it."""
        found = None if raw is None else self._binding.read(raw)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.known:
                return
            entry.known = True
            if found is not None:
                own = entry.value
                entry.value = found.value if own is None else self._binding.merge(own, found.value)
                entry.foreign = bool(found.problems)
        if found is not None and found.problems:
            self._warn(key, found.problems)
        self._save(key, entry)

    def _save(self, key: str, entry: _Entry[_Value]) -> None:
        """Has a value written that is not yet; what was not understood is left alone."""
        with self._lock:
            value = entry.value
            if not (entry.unsaved and entry.known) or entry.foreign or value is None:
                return
            entry.unsaved = False
        if self._keeping is not None:
            self._keeping.put(self._binding.kind, key, self._binding.write(value))

    def _warn(self, key: str, problems: tuple[str, ...]) -> None:
        if key in self._warned or len(self._warned) >= _WARNED:
            return
        self._warned.add(key)
        logger.warning(
            "the %s of %r in the store was not understood (%s): defaults are used for that, and "
            "it is not overwritten",
            self._binding.kind, key, "; ".join(problems),
        )  # fmt: skip
