r"""The one place that makes text safe for logs and terminals.

Names of sessions and tools, replies of webhooks and notices from a store are written by others. In
a log a line end forges a line; on a terminal an escape sequence moves the cursor or sets the title,
and a sign that turns the direction of writing, or that nobody sees, shows another text than is
there. Each such sign is written as its escape (`\n`, `\x1b`, `\u202e`).
"""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
    # Variation selectors but for the two that choose between text and picture of a symbol.
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Signs that Python takes as printable, and that take no place or look like a space."""


def printable(text: str) -> str:
    """A text on one line, in which every sign can be seen and none is a command.

    Line ends, control characters, signs of formatting (direction, zero width, tags), lone
    surrogates and signs that are not assigned are written as Python writes their escapes.
    """
    if text.isascii():
        return text if text.isprintable() else _escaped(text)
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return _escaped(text)


def _escaped(text: str) -> str:
    return "".join(sign if _is_plain(sign) else _written(sign) for sign in text)


def _is_plain(sign: str) -> bool:
    if sign in _UNSEEN:
        return False
    # Python calls spaces other than the usual one unprintable; in some languages they are usual.
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


def _written(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
