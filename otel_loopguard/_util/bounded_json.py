"""JSON in texts that others wrote: its cost is bounded before it is parsed.

A parser's cost follows the number of values, not of characters: a page of a megabyte inside of one
string takes 0.3 ms, a megabyte of `[],[],[]` takes 50 ms, and both look alike from outside.

A parser makes up to 100 bytes of memory of one byte of text, and goes down one call for each level.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from json import decoder
from typing import Final, cast

import orjson

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
        msg = "too costly to parse"
        raise ValueError(msg)
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
"""How deep objects and lists may be nested, as orjson has it; three are one level of an OTLP
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
