"""Collections of bounded size: dictionaries, a set of keys, and what the process knows weakly."""

from __future__ import annotations

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from otel_loopguard._util.locks import new_lock

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _five_bits(number: int) -> int:
    """A word of 64 bits, five of which are set."""
    mixed = (number + 1) * 0x9E37_79B9_7F4A_7C15
    return sum({1 << (mixed >> shift & 63) for shift in range(24, 64, 8)})


_FULL: Final = 2_500
"""Keys of a generation: with five bits each, one in 50 is then taken for known at most."""
_FEW: Final = 64
"""Keys that are kept as they are, in 5 kB at most: many sessions never have more."""
_EMPTY: Final = bytes(8 * 512)
_PLACES: Final = array("Q", map(_five_bits, range(1024)))
"""Which bits of its word a key sets, by ten of its own bits: to work them out takes as long as
all else."""


class BoundedDict(OrderedDict[_Key, _Value]):
    """Keeps at most `maximum` entries: the one that was set longest ago is evicted.

    Reading moves nothing; call `move_to_end` where the least recently read one is to go.
    """

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self.maximum = maximum

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.maximum:
            self.popitem(last=False)

    def __reduce__(self) -> Any:
        """For pickle and copy."""
        return type(self), (self.maximum,), None, None, iter(self.items())


def keep(table: dict[_Key, _Value], key: _Key, value: _Value, maximum: int) -> None:
    """Sets the newest entry of a plain dictionary; past `maximum` the oldest one is evicted.

    For the many small tables of a session: an empty `BoundedDict` takes five times as much memory.
    """
    table.pop(key, None)
    table[key] = value
    if len(table) > maximum:
        del table[next(iter(table))]


class BloomSketch:
    """Remembers about the newest 2,500 to 5,000 of the keys it was shown, in 8 KiB.

    A key that was shown is always known until it is forgotten; one that was not is taken for known
    once in 50 times at most (five bits in one of 512 words per key, 2,500 keys to a generation).
    When a generation is full the one before it is forgotten. The first 64 keys are kept as they
    are: many sessions never have more.
    """

    __slots__ = ("_count", "_few", "_new", "_old")

    def __init__(self) -> None:
        self._few: set[int] = set()
        self._new: array[int] | None = None
        self._old: array[int] | None = None
        self._count = 0

    def add(self, keys: Iterable[int]) -> set[int]:
        """Shows keys of 64 bits; returns those that were not known."""
        if self._new is not None:
            return self._mark(keys, self._new)
        few = self._few
        fresh = set(keys).difference(few)
        few |= fresh
        if len(few) > _FEW:
            self._new, self._few = array("Q", _EMPTY), set()
            self._mark(few, self._new)
        return fresh

    def _mark(self, keys: Iterable[int], new: array[int]) -> set[int]:
        """Sets the bits of keys; returns those of which one was not set."""
        old, places = self._old, _PLACES
        fresh: set[int] = set()
        for key in keys:
            # All that is looked at of it, in one digit of Python's integers.
            own = key & 0x7_FFFF
            word, bits = own & 511, places[own >> 9]
            known = new[word]
            if known & bits == bits:
                continue
            if old is None or old[word] & bits != bits:
                fresh.add(key)
            new[word] = known | bits
            self._count += 1
        if self._count >= _FULL:
            self._old, self._new, self._count = new, array("Q", _EMPTY), 0
        return fresh


_Item = TypeVar("_Item")


class WeakList(Generic[_Item]):
    """Holds objects weakly, in order of arrival; reading takes no lock."""

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
