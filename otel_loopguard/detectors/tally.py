"""Counts equivalents of one repeat: fading, shaken by progress, bounded."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_loopguard.core import Evidence

_FADE: Final = 0.985
_WINDOW: Final = 50
_EARLIER_EPOCH: Final = 1 / 3
_MOST: Final = 64


@dataclass(slots=True)
class Tallied:
    """What was counted under one key.

    Attributes:
        count: Equivalents of one repeat, now.
        tools: Names of the tools that were counted; at most 8.
        calls: Keys of the different calls that were counted; at most 8.
        time: End of the call counted last, nanoseconds since the epoch.
    """

    count: float
    tools: frozenset[str]
    calls: frozenset[int | None]
    time: int
    epoch: int
    round: int
    number: int


class Tally:
    """Counts by key, in equivalents of one repeat.

    A count fades by 1.5 % per call in between and is forgotten after 50 calls without it; what was
    counted before a change of the world counts a third. A parallel round counts once.

    Source: `notes/evidence.md`, lessons 1 and 4.
    """

    __slots__ = ("_tallied",)

    def __init__(self) -> None:
        # What was counted once is kept as its evidence: most answers never come again.
        self._tallied: OrderedDict[Hashable, Tallied | tuple[Evidence, float]] = OrderedDict()

    def add(self, key: Hashable, evidence: Evidence, weight: float) -> Tallied | None:
        """Counts one call under a key.

        Returns:
            What is counted there now; None if it is the first.
        """
        known = self._tallied.pop(key, None)
        tallied = known if known is None or isinstance(known, Tallied) else _first(*known)
        if tallied is None or evidence.number - tallied.number > _WINDOW:
            self._tallied[key] = (evidence, weight)
            if len(self._tallied) > _MOST:
                self._tallied.popitem(last=False)
            return None
        self._count(tallied, evidence, weight)
        self._tallied[key] = tallied
        return tallied

    def last(self, key: Hashable) -> int | None:
        """When the call counted last under a key ended; None if there is none."""
        known = self._tallied.get(key)
        if known is None:
            return None
        return known.time if isinstance(known, Tallied) else known[0].time

    def halve(self) -> None:
        """Takes half of all that was counted."""
        for key, known in self._tallied.items():
            if isinstance(known, Tallied):
                known.count /= 2
            else:
                self._tallied[key] = (known[0], known[1] / 2)

    def _count(self, tallied: Tallied, evidence: Evidence, weight: float) -> None:
        count = tallied.count * _FADE ** max(evidence.number - tallied.number - 1, 0)
        if evidence.epoch != tallied.epoch:
            count *= _EARLIER_EPOCH
        if evidence.round != tallied.round:
            count += weight
        tallied.count, tallied.epoch, tallied.time = count, evidence.epoch, evidence.time
        tallied.round, tallied.number = evidence.round, evidence.number
        if len(tallied.tools) < 8:
            tallied.tools |= {evidence.tool}
        if len(tallied.calls) < 8:
            tallied.calls |= {evidence.call}


def _first(evidence: Evidence, weight: float) -> Tallied:
    return Tallied(
        weight, frozenset({evidence.tool}), frozenset({evidence.call}), evidence.time,
        evidence.epoch, evidence.round, evidence.number,
    )  # fmt: skip
