"""Whether a call asks the same of another item than the call of its tool before it."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

_TRACKED: Final = 64
_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.){1,64})":("(?:[^"\\]|\\.){0,200}"?|[^,{}\[\]]{1,64})')
_SEARCHES: Final = re.compile(
    r"(?i)quer|search|\bq\b|question|keyword|prompt|text|term|phrase|pattern|command|cmd|code|"
    r"script|sql|input|expression"
)
_NUMBERED: Final = re.compile(
    r'\A(?:"?(?=[^\s"]{4})(?=[^\s"]*[a-zA-Z])[^\s"]*\d\d[^\s"]*"?|"?[^\s"@]+@[^\s"]+"?|"?\d{3,}"?)'
)
_NONCE: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|[0-9a-fA-F]{16}|\d{4}-\d\d-\d\d[T ]\d|\b1[4-9]\d{8}|"
    r"/(?:tmp|var)/|(?:[a-zA-Z]{1,8}\d{1,8}){3}"
)


class Items:
    """Remembers the last arguments of the newest 64 tools of a session."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: OrderedDict[str, str] = OrderedDict()

    def another(self, tool: str, sample: str) -> bool:
        """Notes a call, and says whether it asks the same of another item.

        Args:
            tool: Name of the tool.
            sample: The first characters of its canonical arguments.
        """
        last = self._last.pop(tool, None)
        self._last[tool] = sample
        if len(self._last) > _TRACKED:
            self._last.popitem(last=False)
        return last is not None and is_another(last, sample)


def is_another(one: str, other: str) -> bool:
    """Whether two calls of one tool ask the same of two items, a name or a number each.

    In a search only what is numbered or an address is an item: who asks for one thing in other
    words asks for the same. What looks like a nonce beside arguments that stay is none.

    Args:
        one: The first characters of the canonical arguments of one call.
        other: Those of the other.
    """
    if one == other or not one or not other:
        return False
    pairs, others = _PAIR.findall(one), _PAIR.findall(other)
    if not pairs or [name for name, _ in pairs] != [name for name, _ in others]:
        return False
    differing = [
        (name, before, now)
        for (name, before), (_, now) in zip(pairs, others, strict=True)
        if before != now
    ]
    alone = len(differing) == len(pairs)
    return bool(differing) and all(
        _is_item(name, value, alone=alone) for name, *values in differing for value in values
    )


def _is_item(name: str, value: str, *, alone: bool) -> bool:
    if not alone and _NONCE.search(value) is not None:
        return False
    return _SEARCHES.search(name) is None or _NUMBERED.fullmatch(value) is not None
