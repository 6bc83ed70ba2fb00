"""JSON in texts that others wrote; what it costs to parse is known before it is parsed.

A parser's cost follows the number of values, not of characters: a page of a megabyte inside of one
string takes 0.3 ms, a megabyte of `[],[],[]` takes 50 ms, and both look alike from outside.
"""

from __future__ import annotations

import re
from json import decoder
from typing import TYPE_CHECKING, Final, cast

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST: Final = 1_000_000
"""Characters of the longest text that is parsed."""

_SHORT: Final = 8_000
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


def loads(text: str, values: int = VALUES) -> object:
    """The value of a JSON text.

    Args:
        text: The text.
        values: How many values it may have.

    Raises:
        ValueError: It is no JSON, or it is too costly to parse: longer than 1,000,000 characters,
            or of too many values. Such a text is to be compared as text.
    """
    if len(text) > _SHORT and not _is_cheap(text, values):
        msg = "too costly to parse"
        raise ValueError(msg)
    try:
        return cast("object", orjson.loads(text))
    except RecursionError as fault:
        raise ValueError from fault


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
    """Whether a text has few values, whatever its strings hold; looks at so many of them only."""
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
