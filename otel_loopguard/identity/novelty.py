"""How much of a text was not seen before in the session."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final

from otel_loopguard.identity.canonical import key_of

_LOOK: Final = 8_000
_SHINGLE: Final = 4
_KEPT: Final = 4096
_SAMPLE: Final = 8
_WORDS: Final = re.compile(r"\w+")


def words_of(text: str) -> frozenset[int]:
    """Keys of the different words of a text's first 4,000 characters, case folded."""
    found = _WORDS.findall(text[: _LOOK // 2].lower())
    return frozenset(key_of(word.encode("utf-8", "replace")) for word in found)


class Novelty:
    """Remembers a sample of the four-word shingles of a session, the newest 4096.

    One shingle in eight is kept, chosen by its key, so that the same text always gives the same
    sample; of a text that has none of these all are taken.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: OrderedDict[int, None] = OrderedDict()

    def of(self, text: str) -> float:
        """Share of the text that is new, 0 to 1; the text counts as seen from then on."""
        shingles = self._shingles(text)
        if not shingles:
            return 0.0
        new = 0
        for shingle in shingles:
            new += self._seen.pop(shingle, self) is self
            self._seen[shingle] = None
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        return new / len(shingles)

    def _shingles(self, text: str) -> set[int]:
        words = _WORDS.findall(text[:_LOOK].lower())
        if not words:
            return set()
        ends = range(_SHINGLE, max(len(words), _SHINGLE) + 1)
        keys = {
            key_of(" ".join(words[end - _SHINGLE : end]).encode("utf-8", "replace")) for end in ends
        }
        return {key for key in keys if key % _SAMPLE == 0} or keys
