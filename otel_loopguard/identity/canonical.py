"""Canonical form of a value, and its key.

A JSON text and the equal map are the same call; the order of keys and the way a number is written
do not matter (RFC 8785 in spirit). Text that is no JSON stays text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sized
from itertools import count
from typing import Final, cast

import orjson
import xxhash

from otel_loopguard.bounded_json import VALUES, loads

_DEPTH: Final = 32
_BUDGET: Final = 10_000
_BYTES: Final = 4_096
_REWRITTEN: Final = 8_192
_WHOLE: Final = 65_536
_UNLIKE: Final = count()
"""Numbers the values that are not looked at to their end: they are equal to nothing."""

_DECODER: Final = json.JSONDecoder()
_WRITTEN: Final = frozenset((b'{"', b"{'", b'["', b"['", b"[{"))
_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"ghijklmnopqrstuv")
_SORTED: Final = orjson.OPT_SORT_KEYS

key_of = xxhash.xxh3_64_intdigest
"""Key of bytes: 64 bits, the same in every process."""


def parsed(value: object, values: int = VALUES) -> object:
    """The JSON value of a text that is a JSON object or array; anything else as it is.

    Text that is too costly to parse, of more than `values` values, stays text (`bounded_json`).
    """
    if isinstance(value, str) and value[:1] in "{[ \n" and value:
        try:
            return loads(value, values)
        except ValueError:
            return value
    return value


def canonical(value: object) -> bytes:
    """Canonical bytes of a value that was `parsed`. Never throws, whatever the value is."""
    if isinstance(value, str):
        return text_bytes(value)
    try:
        raw = orjson.dumps(value, option=_SORTED)
    except (TypeError, RecursionError):
        return orjson.dumps(_plain(value, _DEPTH, [_BUDGET]), option=_SORTED)
    if b".0" in raw and len(raw) <= _REWRITTEN:
        # Python's speed, and of long data all of it is written in one way.
        return orjson.dumps(_plain(value, _DEPTH, [_BUDGET]), option=_SORTED)
    return raw


def text_bytes(text: str) -> bytes:
    """UTF-8 of a text without the space around it; lone surrogates are kept apart."""
    try:
        return text.strip().encode()
    except UnicodeEncodeError:
        return text.strip().encode("utf-8", "surrogatepass")


def bounded(raw: bytes, limit: int) -> bytes:
    """At most about `limit` bytes of `raw`; of what is longer its ends, and a key of the rest.

    What differs anywhere is different.
    """
    if len(raw) <= limit:
        return raw
    half = limit // 2
    # In letters that no mask takes for an id.
    middle = (b"%x" % key_of(raw[half:-half])).translate(_LETTERS)
    return b"%b|%d %b|%b" % (raw[:half], len(raw), middle, raw[-half:])


def is_cut_json(raw: bytes) -> bool:
    """Whether text of a map or a list ends before its end, as a limit of attributes leaves it.

    Two values that begin alike are then equal only by a guess.
    """
    if raw[:2] not in _WRITTEN or raw.rstrip()[-1:] in b"}]":
        return False
    if len(raw) > _WHOLE:
        return True
    try:
        _DECODER.raw_decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return True
    return False  # a whole value, and text behind it


def _plain(value: object, depth: int, left: list[int]) -> object:
    """The value in JSON's types; a cycle ends at the depth, what has too many items is unlike."""
    left[0] -= 1
    if left[0] < 0:
        return f"…{next(_UNLIKE)}"
    if value is None or isinstance(value, (bool, int, float)):
        return _number(value)
    if isinstance(value, str):
        return text_bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, (bytes, bytearray)):
        return "bytes:" + bounded(bytes(value), _BYTES).hex()
    return _contained(value, depth, left) if depth else "…"


def _contained(value: object, depth: int, left: list[int]) -> object:
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        if len(cast("Sized", value)) > left[0]:
            return f"…{next(_UNLIKE)}"
        if isinstance(value, Mapping):
            named = cast("Mapping[object, object]", value)
            return {
                str(_plain(name, 0, left)): _plain(item, depth - 1, left)
                for name, item in named.items()
            }
        return [_plain(item, depth - 1, left) for item in cast("list[object]", value)]
    return f"<{type(value).__name__}>"


def _number(value: float | None) -> object:
    if isinstance(value, int):
        # `str` refuses more than 4300 digits.
        return value if abs(value) < 2**63 else hex(value)
    if value is None:
        return None
    if math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return str(value)
