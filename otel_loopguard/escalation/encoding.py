"""JSON of whatever was read off spans, or said by people: what JSON has no word for is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson


def encoded(value: Mapping[str, Any]) -> bytes:
    """A map as JSON on one line.

    A lone surrogate becomes its escape, a number of more than 64 bits a text.

    Args:
        value: The map; its values are what JSON knows.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_plain(value))


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {_plain(str(name)): _plain(inner) for name, inner in pairs}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in cast("list[object]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return str(value)
    return value
