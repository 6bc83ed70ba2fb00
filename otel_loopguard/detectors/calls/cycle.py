"""Do the same calls come back in the same order, with the same answers? (C3)"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.periods import Periods

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_LONG: Final = 9
_MIDDLE: Final = 4
_LEAST: Final = 1.5
_SILENT: Final = 10
_ACTS: Final = 20


class Cycle:
    """Finds cycles of any period from 2 to `cycle_max_period` (16) in O(period) per call.

    `m[p]` grows while this call equals the one `p` calls ago and falls to 0 otherwise; a cycle is
    found at `m[p] >= (r - 1) * p`. `r` is `cycle_repeats` (3) turns for periods to 3, half a turn
    less from period 4 and a turn less from period 9: a long cycle is less likely by chance. Equal
    means: call, outcome and epoch; so a cycle that changes anything is none. Waits and parallel
    duplicates are passed over; what was not captured breaks the cycle.

    A cycle of nothing but acknowledged calls takes ten turns, one with presses, clicks and moves in
    it twenty, and it leads to a hint at most: none of its answers says that nothing changed.

    Source: DESIGN "Identity of a call", last rule; FEATURES C3, W3.
    """

    name = "cycle"
    family = "repetition"
    __slots__ = ("_acts", "_calls", "_last_round", "_need", "_periods", "_tells")

    def __init__(self, settings: Settings) -> None:
        longest = settings.cycle_max_period
        # A cycle of one call is a repeat, and has another detector.
        self._need = [0, 0] + [
            _calls_needed(period, max(settings.cycle_repeats / settings.sensitivity, _LEAST))
            for period in range(2, longest + 1)
        ]
        self._periods = Periods(self._need)
        self._calls: deque[int] = deque(maxlen=longest)
        self._tells: deque[bool] = deque(maxlen=longest)
        self._acts: deque[bool] = deque(maxlen=longest)
        self._last_round = -1

    def user_turn(self) -> None:
        self._periods.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits:
            return None
        if evidence.call is None or evidence.outcome is None:
            self._periods.take(None)
            self._calls.append(0)
            self._tells.append(False)
            self._acts.append(False)
            return None
        symbol = hash((evidence.call, evidence.outcome, evidence.epoch))
        if evidence.round == self._last_round and symbol in self._periods:
            return None
        self._last_round = evidence.round
        found = self._periods.take(symbol)
        self._calls.append(evidence.call)
        self._tells.append(not evidence.bare and not evidence.acts)
        self._acts.append(evidence.acts)
        return self._detection(found, evidence) if found else None

    def _detection(self, period: int, evidence: Evidence) -> Detection | None:
        turns = self._periods.run(period) / period + 1
        tells = any(list(self._tells)[-period:])
        if not tells and turns < (_ACTS if any(list(self._acts)[-period:]) else _SILENT):
            return None
        threshold = self._need[period] / period + 1
        return Detection(
            detector=self.name,
            reason="cycle",
            severity=Severity.CRITICAL if turns >= threshold + 1 else Severity.WARNING,
            confidence=min(0.99, 0.85 + 0.04 * (turns - threshold)),
            keys=frozenset(list(self._calls)[-period:]),
            count=round(turns, 2),
            threshold=round(threshold, 2),
            message=f"a cycle of {period} calls that ends with {evidence.tool!r} went round "
            f"{turns:.1f} times with equal arguments and equal outcomes",
            period=period,
            max_action=Action.HINT if evidence.guessed or not tells else Action.ABORT,
        )


def _calls_needed(period: int, repeats: float) -> int:
    less = 1.0 if period >= _LONG else 0.5 if period >= _MIDDLE else 0.0
    return max(round((repeats - less - 1) * period), period)
