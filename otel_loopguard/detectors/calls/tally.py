"""Counts equivalents of one repeat: fading, shaken by progress, bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_loopguard.core import Evidence

_FADE: Final = 0.985
_WINDOW: Final = 50
_EARLIER_EPOCH: Final = 1 / 3
_MOST: Final = 50


@dataclass(slots=True)
class Tallied:
    """What was counted under one key.

    Attributes:
        count: Equivalents of one repeat, now.
        tools: Names of the tools that were counted; at most 8.
        calls: Keys of the different calls that were counted; at most 8.
        time: End of the call counted last, nanoseconds since the epoch.
        sample: First characters of the arguments of the call counted last.
    """

    count: float
    tools: frozenset[str]
    calls: frozenset[int | None]
    time: int
    epoch: int
    round: int
    number: int
    sample: str


class Tally:
    """Counts by key, in equivalents of one repeat.

    A count fades by 1.5 % per call in between and is forgotten after 50 calls without it; what was
    counted before a change of the world counts a third. A parallel round counts once.

    Args:
        across_changes: Whether a change of the world leaves all of it.

    Source: `notes/evidence.md`, lessons 1 and 4.
    """

    __slots__ = ("_earlier", "_once", "_tallied")

    def __init__(self, *, across_changes: bool = False) -> None:
        self._earlier = 1.0 if across_changes else _EARLIER_EPOCH
        # What was counted once is kept as its evidence: most answers never come again.
        self._once: dict[Hashable, tuple[Evidence, float]] = {}
        self._tallied: dict[Hashable, Tallied] = {}

    def add(self, key: Hashable, evidence: Evidence, weight: float) -> Tallied | None:
        """Counts one call under a key.

        Returns:
            What is counted there now; None if it is the first.
        """
        tallied = self._tallied.pop(key, None)
        once = self._once.pop(key, None)
        if tallied is None and once is not None:
            tallied = _first(*once)
        if tallied is None or evidence.number - tallied.number > _WINDOW:
            self._once[key] = (evidence, weight)
            if len(self._once) > _MOST:
                del self._once[next(iter(self._once))]
            return None
        self._count(tallied, evidence, weight)
        self._tallied[key] = tallied
        if len(self._tallied) > _MOST:
            del self._tallied[next(iter(self._tallied))]
        return tallied

    def last(self, key: Hashable) -> Tallied | Evidence | None:
        """What was counted last under a key: its `time`, `epoch` and `sample`."""
        known = self._tallied.get(key)
        if known is not None:
            return known
        once = self._once.get(key)
        return None if once is None else once[0]

    def answered(self, tool: str, key: Hashable, factor: float) -> None:
        """A tool answered otherwise: what was counted of it elsewhere weighs less.

        Args:
            tool: Name of the tool.
            key: The key that its answer counts under.
            factor: What is left of the other counts of this tool.
        """
        for other, tallied in self._tallied.items():
            if tool in tallied.tools and other != key:
                tallied.count *= factor

    def forget(self, tool: str) -> bool:
        """Forgets what a tool had a part in; whether there was anything."""
        tallied = [key for key, found in self._tallied.items() if tool in found.tools]
        once = [key for key, (found, _) in self._once.items() if found.tool == tool]
        for key in tallied:
            del self._tallied[key]
        for key in once:
            del self._once[key]
        return bool(tallied or once)

    def halve(self) -> None:
        """Takes half of all that was counted."""
        for tallied in self._tallied.values():
            tallied.count /= 2
        for key, (evidence, weight) in self._once.items():
            self._once[key] = (evidence, weight / 2)

    def _count(self, tallied: Tallied, evidence: Evidence, weight: float) -> None:
        count = tallied.count * _FADE ** max(evidence.number - tallied.number - 1, 0)
        if evidence.epoch != tallied.epoch:
            count *= self._earlier
        if evidence.round != tallied.round:
            count += weight
        tallied.count, tallied.epoch, tallied.time = count, evidence.epoch, evidence.time
        tallied.round, tallied.number = evidence.round, evidence.number
        tallied.sample = evidence.sample
        if len(tallied.tools) < 8:
            tallied.tools |= {evidence.tool}
        if len(tallied.calls) < 8:
            tallied.calls |= {evidence.call}


def _first(evidence: Evidence, weight: float) -> Tallied:
    return Tallied(
        weight, frozenset({evidence.tool}), frozenset({evidence.call}), evidence.time,
        evidence.epoch, evidence.round, evidence.number, evidence.sample,
    )  # fmt: skip
