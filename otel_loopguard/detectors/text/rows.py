"""Texts in a row, of one speaker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.detectors.text.speakers import Speakers

if TYPE_CHECKING:
    from otel_loopguard.core import Saying


class _Row(NamedTuple):
    length: int
    turn: int


class Rows:
    """How many texts in a row of a speaker show the same sign, within one turn.

    Texts that were written beside each other (samples of one question) are one.

    Args:
        sign: Whether a text shows it.
    """

    __slots__ = ("_rows", "_sign")

    def __init__(self, sign: Callable[[Saying], bool]) -> None:
        self._sign = sign
        self._rows: Speakers[_Row] = Speakers()

    def count(self, saying: Saying) -> int:
        """Texts in a row with this one, this one included; 0 if it does not show the sign."""
        before = self._rows.take(saying.speaker)
        if not self._sign(saying):
            return 0
        length = before.length if before is not None and before.turn == saying.turn else 0
        length = max(length + (not saying.beside), 1)
        self._rows.put(saying.speaker, _Row(length, saying.turn))
        return length

    def clear(self) -> None:
        """Begins anew for all speakers."""
        self._rows.clear()
