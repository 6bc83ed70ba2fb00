"""What a text is made of, at a cost that does not depend on its length."""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.core import Tail
from otel_loopguard.identity.canonical import key_of

_SAMPLE: Final = 1_000
_LOOK: Final = 4_000
_PROBE: Final = 48
_FENCE: Final = "```"
_MARKS: Final = frozenset("{}[]|<>=;`\t")
_TABLE: Final = 0.5
_DIGITS: Final = re.compile(r"\d+")
_CHANTED: Final = 16_000
_SENTENCES: Final = 500
_VERSES: Final = 24
_LEAST: Final = 25
_WHOLE: Final = 12
_DATA: Final = ("{", "[", "<")
_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE: Final = re.compile(r"[^.!?\n]+")


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
    """Key of all of a text: a hash of ten megabytes takes less than a pattern of a page."""
    return key_of(text.strip().encode("utf-8", "surrogatepass"))


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


def chant_of(text: str, times: int, chars: int) -> Tail | None:
    """A sentence, or a few of them, said over and over anywhere in a text; None if there is none.

    Sentences and lines are compared without their case and spaces, in a row and in groups of up to
    24, one of which has 12 characters. What is no prose, as a line of a table, ends a row; blocks
    of code and data are left out. Of a long text head and tail are looked at, 16,000 characters
    and 500 sentences each.

    Args:
        text: The text.
        times: Repeats in a row that make a chant.
        chars: Characters that they cover at least.

    Source: `notes/agents.md`, wish 5 (gemini-cli's check for chanting, reports of Claude Code's
    users).
    """
    if len(text) < chars or text[:_LOOK].lstrip()[:1] in _DATA:
        return None
    prose = _BLOCK.sub("\n`\n", cut(text, _CHANTED))
    sentences: list[str] = _SENTENCE.findall(prose)
    if len(sentences) > 2 * _SENTENCES:
        sentences = [*sentences[:_SENTENCES], "`", *sentences[-_SENTENCES:]]
    said = [" ".join(one.lower().split()) for one in sentences]
    said = [one for one in said if one]
    if len(said) < times or len(set(said)) > len(said) - times + 1:
        return None
    for period in range(1, min(_VERSES, len(said) // times) + 1):
        found = _verses(said, period, times, chars)
        if found is not None:
            return found
    return None


def _verses(said: list[str], period: int, times: int, chars: int) -> Tail | None:
    """A group of sentences that stands often enough in a row."""
    row = 0
    prose: dict[str, bool] = {}
    for place in range(period, len(said)):
        one = said[place]
        same = one == said[place - period]
        if same and one not in prose:
            prose[one] = _is_prose(f"{one} ")
        same = same and prose[one]
        row = row + 1 if same else 0
        if row < period * (times - 1):
            continue
        verse = said[place - period + 1 : place + 1]
        size, often = sum(map(len, verse)) + period, row // period + 1
        if size >= max(_LEAST, -(-chars // often)) and max(map(len, verse)) >= _WHOLE:
            key = key_of("".join(sorted(verse)).encode("utf-8", "surrogatepass"))
            return Tail(key, size, often)
    return None


def _is_prose(unit: str) -> bool:
    letters = sum(char.isalpha() for char in unit)
    return letters > 1 and any(char.isspace() for char in unit) and _MARKS.isdisjoint(unit)


def _fenced(text: str) -> bool:
    """Whether the end of a text stands in a block of code, as far as its look tells."""
    return look_of(text).count(_FENCE) % 2 == 1
