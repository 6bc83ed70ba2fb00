"""Whether JSON text is too much to parse, told before any parser sees it.

A parser makes up to 100 bytes of memory of one byte of text, and goes down one call for each level.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

DEPTH: Final = 1_000
"""How deep objects and lists may be nested; three of these are one level of an OTLP value."""

VALUES: Final = 4_000_000
"""Values of a line or a document. Recorded runs have one in 20 to 30 bytes, so about 100 MB."""

_CHUNK: Final = 1024 * 1024
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
    if opened <= DEPTH and opened + text.count(b",") <= VALUES:
        return None
    values = level = 0
    for strings, marks in _marks(text):
        brackets = marks.replace(b",", b"")
        # A valid text has at most two strings, a key and a value, for each of these.
        values += max(len(marks) - marks.count(b"]") - marks.count(b"}"), strings // 2)
        if values > VALUES:
            return f"has more than {VALUES:,} values"
        levels = list(accumulate(array("b", brackets.translate(_STEPS)), initial=level))
        level = levels[-1]
        if max(levels) > DEPTH:
            return f"is nested deeper than {DEPTH:,} levels"
    return None


def _marks(text: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    """How many strings a piece of the text has, and the brackets and commas outside of them."""
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
