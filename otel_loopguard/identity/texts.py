"""What a text is made of, at a cost that does not depend on its length."""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.core import Tail
from otel_loopguard.identity.canonical import key_of

_SAMPLE: Final = 1_000
_LOOK: Final = 4_000
_KEYED: Final = 16_000
_PROBE: Final = 48
_FENCE: Final = "```"
_MARKS: Final = frozenset("{}[]|<>=;`\t")
_TABLE: Final = 0.5
_DIGITS: Final = re.compile(r"\d+")


def cut(text: str, each: int) -> str:
    """Head and tail of a text, of at most `each` characters; all of a text that is no longer."""
    return text if len(text) <= 2 * each else f"{text[:each]}\n{text[-each:]}"


def look_of(text: str) -> str:
    """The 8,000 characters of a text that patterns are looked for in."""
    return cut(text, _LOOK)


def sample_of(text: str) -> str:
    """The 2,000 characters of a text that others are compared with: lower case, evenly spaced."""
    return " ".join(cut(text, _SAMPLE).lower().split())


def key_of_text(text: str) -> int:
    """Key of a text; of a long one of head, tail and length."""
    kept = text if len(text) <= _KEYED else f"{cut(text, _KEYED // 2)}{len(text)}"
    return key_of(kept.strip().encode("utf-8", "surrogatepass"))


def shape_of(sample: str) -> int:
    """Key of a sample, whatever its numbers are."""
    return key_of(_DIGITS.sub("0", sample).encode("utf-8", "surrogatepass"))


def is_structured(look: str) -> bool:
    """Whether a text is data rather than prose: JSON, a block of code, a table.

    Source: F11 (a translation as JSON was cut in the middle of its array).
    """
    text = look.strip()
    if text[:1] in ("{", "[", "<") or text.startswith(_FENCE):
        return True
    lines = [line for line in text.split("\n", 200)[:200] if line]
    rows = sum("|" in line or "\t" in line for line in lines)
    return rows > _TABLE * len(lines)


def tail_of(text: str, longest: int, times: int, chars: int) -> Tail | None:
    """The end of a text, if it repeats itself; None otherwise, in data and in blocks of code.

    The last 48 characters are looked for right before themselves: how far back they stand is the
    period. All of it is done by comparing slices of a window of bounded length.

    Args:
        text: The text.
        longest: Longest period, in characters.
        times: Repeats that make a tail.
        chars: Characters that they cover at least.

    Source: F11 and the numbers of gemini-cli (10 hits of 50 characters, off in fences, tables and
    lists of data).
    """
    window = text[-max(longest * (times + 1), chars + longest) - _PROBE :].rstrip()
    place = len(window) - _PROBE
    found = window.rfind(window[-_PROBE:], 0, len(window) - 1) if place > 0 else -1
    period = place - found
    if found < 0 or period > longest:
        return None
    unit = window[-period:]
    need = max(times, -(-chars // period))
    if not window.endswith(unit * need) or not _is_prose(unit) or _fenced(text):
        return None
    start = len(window)
    while start >= period and window.startswith(unit, start - period):
        start -= period
    # Its characters in order are the same wherever the tail was cut: one loop.
    key = key_of("".join(sorted(unit)).encode("utf-8", "surrogatepass"))
    return Tail(key, period, (len(window) - start) // period)


def _is_prose(unit: str) -> bool:
    letters = sum(char.isalpha() for char in unit)
    return letters > 1 and any(char.isspace() for char in unit) and _MARKS.isdisjoint(unit)


def _fenced(text: str) -> bool:
    """Whether the end of a text stands in a block of code, as far as its look tells."""
    return look_of(text).count(_FENCE) % 2 == 1
