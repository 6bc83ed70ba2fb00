"""The best of each number that is measured."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence

_TRACKED: Final = 32


@dataclass(slots=True)
class Best:
    """What was measured under one name.

    Attributes:
        low: The lowest number.
        high: The highest.
        tries: Tries since one of the two was reached.
        epoch: Epoch of the last one.
        round: Round of the last one.
    """

    low: float
    high: float
    tries: int
    epoch: int
    round: int


class Bests:
    """The best numbers of a session; which way is better nobody knows, so both ways are."""

    __slots__ = ("_bests",)

    def __init__(self) -> None:
        self._bests: OrderedDict[tuple[int, str, int], Best] = OrderedDict()

    def clear(self) -> None:
        """Forgets what was measured."""
        self._bests.clear()

    def add(self, evidence: Evidence) -> tuple[Best, bool] | None:
        """Counts one measurement; None if the call measures nothing, or is the same try again.

        Returns:
            What is known under the name, and whether the number is better than any before.
        """
        if evidence.score is None:
            return None
        name, value = evidence.score
        key = (evidence.agent, evidence.tool, name)
        best = self._bests.pop(key, None)
        if best is None:
            best = Best(value, value, 0, evidence.epoch, evidence.round)
            self._bests[key] = best
            if len(self._bests) > _TRACKED:
                self._bests.popitem(last=False)
            return best, False
        self._bests[key] = best
        better = not best.low <= value <= best.high
        again = evidence.round == best.round or (
            not evidence.fresh and evidence.epoch == best.epoch and not evidence.changed
        )
        best.low, best.high = min(best.low, value), max(best.high, value)
        best.epoch, best.round = evidence.epoch, evidence.round
        if again and not better:
            return None
        best.tries = 0 if better else best.tries + 1
        return best, better
