"""Arguments of a call, as far as they say how long it may take: size, complexity, identity."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

_MOST_CHARS: Final = 10_000
_MOST_FIELDS: Final = 50
_MOST_CONTAINERS: Final = 20
_LOOKED_AT: Final = 100_000
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


class Arguments(NamedTuple):
    """What is measured of the arguments of one call; nothing of them is kept.

    Attributes:
        size: Bytes of them as JSON; None if they were not captured, or are no data.
        complexity: 0 for the plainest, 1 for the most complex.
        key: Equal for equal arguments, within this process only; None without a size.
    """

    size: int | None
    complexity: float
    key: int | None


_UNKNOWN: Final = Arguments(None, 0.0, None)


def measure(args: object) -> Arguments:
    """Measures arguments. Never throws, whatever they are; microseconds for a few kilobytes.

    A JSON text and the equal map measure about the same. Complexity is the mean of three shares,
    each at most 1: bytes of 10,000, fields of 50, maps and lists of 20.

    Args:
        args: A JSON value or text; None if it was not captured.
    """
    if args is None:
        return _UNKNOWN
    if isinstance(args, str):
        raw = args[:_LOOKED_AT].encode("utf-8", "surrogatepass")
        return _measured(raw, max(len(raw), len(args)))
    try:
        raw = orjson.dumps(args, default=_named, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        return _UNKNOWN
    return _measured(raw, len(raw))


def _measured(raw: bytes, size: int) -> Arguments:
    looked = raw if len(raw) <= _LOOKED_AT else raw[:_LOOKED_AT]
    fields = looked.count(b":") / _MOST_FIELDS
    containers = (looked.count(b"{") + looked.count(b"[")) / _MOST_CONTAINERS
    length = size / _MOST_CHARS
    if length > 1 or fields > 1 or containers > 1:
        length, fields, containers = min(length, 1.0), min(fields, 1.0), min(containers, 1.0)
    return Arguments(size, (length + fields + containers) / 3, hash(looked) ^ size)


def _named(value: object) -> str:
    """What stands for a value that JSON has no word for."""
    return type(value).__name__
