"""Words and patterns that evidence is read with, from `words.txt` and `phrases.txt`.

A word may accuse: a call failed, found nothing, reads. A run in another language, or with other
names of tools, is judged later. One kind of word excuses: a poll that says "not ready" is hinted at
and not refused, even without pauses. In other words such a poll is refused in the end; with a rest
of five seconds no word is needed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from otel_loopguard._util.tables import read_table

_LISTS: Final = {
    row.name: tuple(" ".join(row.lines).split()) for row in read_table(__name__, "words.txt")
}
WORDS: Final = {says: frozenset(words) for says, words in _LISTS.items()}
"""Single words, by what they say."""
WORDS["volatile"] |= WORDS["request ids"]
FILE_ARGUMENTS: Final = _LISTS["names a file"]
"""Arguments that name a file, the surest one first."""
COMMAND_ARGUMENTS: Final = _LISTS["holds a command"]
"""Arguments that hold what a shell, an interpreter or a database is to run; likewise."""


class Phrase(NamedTuple):
    """A pattern, what it says, in which language, and where it is written."""

    says: str
    language: str
    pattern: str
    place: str


def _phrases() -> list[Phrase]:
    parts: dict[str, str] = {}
    found: list[Phrase] = []
    for row in read_table(__name__, "phrases.txt"):
        pattern = "".join(row.lines)
        for part, inside in parts.items():
            pattern = pattern.replace(part, inside)
        if row.name.startswith("(?&"):
            parts[row.name] = pattern
        else:
            says, _, language = row.name.removesuffix(")").partition(" (")
            found.append(Phrase(says, language, pattern, row.place))
    return found


PHRASES: Final = _phrases()
"""Phrases and shapes of words; those of answers are looked for in lower case."""
LANGUAGES: Final = frozenset(one.language for one in PHRASES)


def pattern_of(says: str, *languages: str) -> str:
    """The pattern of what all phrases say that, or those of some languages."""
    return "|".join(
        one.pattern
        for one in PHRASES
        if one.says == says and (not languages or one.language in languages)
    )
