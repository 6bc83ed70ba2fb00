"""Is a range read again that was read through before? (paging that wraps around)"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Effect, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_TRACKED: Final = 16
_PLACES: Final = 256
_FEW: Final = 5


@dataclass(slots=True)
class _Sweep:
    """The places of one range that were read, in order, and how often one was read again."""

    epoch: int
    places: list[float] = field(default_factory=list[float])
    last: float = 0.0
    stride: float = 0.0
    wrapped: bool = False
    again: float = 0.0
    round: int = -1


class Sweep:
    """Counts calls that ask for a place in a range that was read through already.

    Place: the one number among the arguments that pages through something (`offset`, `page`, …),
    all else being equal. After the first step back, a place between two that were read and lie no
    further apart than one and a half strides is read again, whatever the answer says: the answers
    of a sweep that wraps around, shifted by half a page, are all new. A detection from
    `sweep_threshold` (8) places; five or more have to be known before. A change of the world starts
    again. It leads to a hint at most.

    Source: `notes/evidence.md`, lesson 10; miss N7 of `notes/detectors.md`.
    """

    name = "sweep"
    family = "standstill"
    __slots__ = ("_sweeps", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.sweep_threshold
        self._sweeps: OrderedDict[int, _Sweep] = OrderedDict()

    def user_turn(self) -> None:
        """What was read before was read for something else."""
        self._sweeps.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.place is None or evidence.waits or evidence.effect is Effect.WRITE:
            return None
        key, place = evidence.place
        sweep = self._sweeps.pop(key, None)
        if sweep is None or sweep.epoch != evidence.epoch:
            sweep = _Sweep(evidence.epoch)
        self._sweeps[key] = sweep
        if len(self._sweeps) > _TRACKED:
            self._sweeps.popitem(last=False)
        again = _again(sweep, place, evidence.round)
        _step(sweep, place)
        if not again or sweep.again < evidence.needs(self._threshold):
            return None
        return self._detection(evidence, key, sweep)

    def _detection(self, evidence: Evidence, key: int, sweep: _Sweep) -> Detection:
        return Detection(
            detector=self.name,
            reason="read_again",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.02 * (sweep.again - self._threshold)),
            keys=frozenset({key}),
            count=sweep.again,
            threshold=evidence.shown(self._threshold),
            message=f"{evidence.tool!r} read {sweep.again:g} places again that it had read through "
            "before",
            max_action=Action.HINT,
        )


def _again(sweep: _Sweep, place: float, number: int) -> bool:
    """Whether a place lies in what was read through; counts it, once in a round."""
    if place < sweep.last:
        sweep.wrapped = True
    known = len(sweep.places)
    if not sweep.wrapped or known < _FEW:
        return False
    right = bisect_left(sweep.places, place)
    here = right < known and sweep.places[right] == place
    between = 0 < right < known and (
        sweep.places[right] - sweep.places[right - 1] <= 1.5 * sweep.stride
    )
    if here or between:
        sweep.again += number != sweep.round
        sweep.round = number
    return here or between


def _step(sweep: _Sweep, place: float) -> None:
    if sweep.places and place > sweep.last:
        step = place - sweep.last
        sweep.stride = step if not sweep.stride else min(sweep.stride, step)
    right = bisect_left(sweep.places, place)
    if len(sweep.places) < _PLACES and (right == len(sweep.places) or sweep.places[right] != place):
        insort(sweep.places, place)
    sweep.last = place
