"""Bounds: of collections, and of the JSON in texts that others wrote.

A parser's cost follows the number of values, not of characters: a page of a megabyte inside of one
string takes 0.3 ms, a megabyte of `[],[],[]` takes 50 ms, and both look alike from outside. It
makes up to 100 bytes of memory of one byte of text, and goes down one call for each level. So its
cost is bounded before a text is parsed.
"""

from __future__ import annotations

import re
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from json import decoder
from typing import Any, Final, Generic, TypeVar, cast

import orjson

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


UNKNOWN: Final = "unknown"
OTHER: Final = "other"


class CardinalityLimit:
    """The first `most` different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.
    """

    LONGEST: Final = 200
    """Characters of a name. Names of agents and tools are far shorter; what is longer is content
    that an instrumentation put in their place."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def get(self, name: str | None) -> str:
        """The value of an attribute for a name: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[: self.LONGEST]
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= self._most:
                return OTHER
            # Prometheus' page is written as a whole: half of a character would be its end.
            found = self._known[name] = name.encode("utf-8", "backslashreplace").decode()
        return found

    @property
    def all(self) -> tuple[str, ...]:
        """The known names, in the order of their arrival."""
        return tuple(self._known.values())


LONGEST: Final = 1_000_000
"""Characters of the longest text that is parsed."""

_SHORT: Final = 8_000
"""Characters of a text that is parsed unseen: even of brackets alone that takes under 1 ms."""
VALUES: Final = 5_000
"""Values of a text that is parsed (2 ms); what is behind them is walked in Python, as a rule."""

MANY: Final = 100_000
"""Values of arguments, which are only written anew (20 ms)."""

_SKIMMED: Final = 1_000
"""Strings, numbers and brackets, either side, that are looked at."""
_NEXT: Final = re.compile(r'[\s,:]{0,64}(?:["\[\]{}]|[^"\s,:\[\]{}]{1,64})?')


string_at: Final = cast("Callable[[str, int, bool], tuple[str, int]]", vars(decoder)["scanstring"])
"""The JSON string that begins behind a quote, and where it ends; raises ValueError if it does not.

Given the text, the place behind the quote, and whether control characters end it, too.
"""

_last: tuple[str, int, bool] = "", 0, True
"""The text that was looked at last: several parts of the guard ask for the same one in a row."""
_parsed: tuple[str, object] = "", None
"""The text that was parsed last, likewise, and its value."""


def loads(text: str, values: int = VALUES) -> object:
    """The value of a JSON text; it may be another caller's, too, and must not be changed."""
    global _parsed  # noqa: PLW0603
    if len(text) > _SHORT and not _is_cheap(text, values):
        raise ValueError("too costly to parse")
    last, value = _parsed
    if last is text and text:
        return value
    try:
        value: object = orjson.loads(text)
    except RecursionError as fault:
        raise ValueError from fault
    _parsed = text, value
    return value


def _is_cheap(text: str, most: int) -> bool:
    global _last  # noqa: PLW0603
    last, limit, cheap = _last
    if last is text and limit == most:
        return cheap
    if len(text) > LONGEST:
        return False
    # Every value but the first has one of these before it. Those inside of strings count too.
    values = text.count(",") + text.count("[") + text.count("{")
    cheap = values <= most or _has_few(text)
    _last = text, most, cheap
    return cheap


def _has_few(text: str) -> bool:
    """True if a text has few values, whatever its strings hold; looks at so many of them only."""
    place, end, skip = 0, len(text), _NEXT.match
    try:
        for _ in range(_SKIMMED):
            found = skip(text, place)
            if found is None or (after := found.end()) == place:
                return False
            place = after
            if text[place - 1] == '"':
                place = string_at(text, place, False)[1]
            if place == end:
                return True
    except ValueError:
        return False
    return False


DEPTH: Final = 1_024
"""Levels that objects and lists may be nested, as orjson has it; three are one level of an OTLP
value."""

MAX_RECORDED_VALUES: Final = 4_000_000
"""Values of a line or a document. Recorded runs have one in 20 to 30 bytes, so about 100 MB."""

_CHUNK: Final = 1024 * 1024
"""Bytes that are looked at together; the copies made of them are as large."""
# Escaped quotes are taken out before. A string that does not end goes on to the end of the text.
_STRING: Final = re.compile(rb'"[^"]*"?')
_NO_MARKS: Final = bytes(set(range(256)).difference(b"[]{},"))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as what they add to the depth, in signed bytes."""


def oversized(text: bytes | bytearray) -> str | None:
    """Why text is too much to parse as JSON, after its name; None if it is not.

    The time it takes is linear in the length of the text.
    """
    opened = text.count(b"[") + text.count(b"{")
    if opened <= DEPTH and opened + text.count(b",") <= MAX_RECORDED_VALUES:
        return None
    values = level = 0
    for strings, marks in _marks(text):
        brackets = marks.replace(b",", b"")
        # A valid text has at most two strings, a key and a value, for each of these.
        values += max(len(marks) - marks.count(b"]") - marks.count(b"}"), strings // 2)
        if values > MAX_RECORDED_VALUES:
            return f"has more than {MAX_RECORDED_VALUES:,} values"
        levels = list(accumulate(array("b", brackets.translate(_STEPS)), initial=level))
        level = levels[-1]
        if max(levels) > DEPTH:
            return f"is nested deeper than {DEPTH:,} levels"
    return None


def _marks(text: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    """Number of strings in a piece of text, and of brackets and commas outside them."""
    inside, carried = False, b""
    for place in range(0, len(text), _CHUNK):
        piece = carried + text[place : place + _CHUNK]
        carried = b""
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece, carried = piece[:-1], b"\\"
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        if inside:
            piece = b'"' + piece
        quotes = piece.count(b'"')
        inside = quotes % 2 == 1
        yield quotes // 2, _STRING.sub(b"", piece).translate(None, _NO_MARKS)
