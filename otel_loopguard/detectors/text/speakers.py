"""What a detector remembers of each speaker, for the newest few."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_SPEAKERS: Final = 4


class Speakers(Generic[T]):
    """One thing remembered for each of the newest 4 speakers of a session.

    Different agents are different speakers: what one says is no repetition of the other.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[int, T] = OrderedDict()

    def take(self, speaker: int) -> T | None:
        """What is remembered of a speaker, if anything is; it is forgotten with that."""
        return self._known.pop(speaker, None)

    def put(self, speaker: int, remembered: T) -> None:
        """Remembers something of a speaker; the one unheard for longest is forgotten."""
        self._known[speaker] = remembered
        if len(self._known) > _SPEAKERS:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forgets all speakers."""
        self._known.clear()
