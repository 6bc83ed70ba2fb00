"""Do the same calls come back in the same order, with the same answers? (C3)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_LONG: Final = 9
_MIDDLE: Final = 4


class Cycle:
    """Finds cycles of any period from 2 to `cycle_max_period` (16) in O(period) per call.

    `m[p]` grows while this call equals the one `p` calls ago and falls to 0 otherwise; a cycle is
    found at `m[p] >= (r - 1) * p`. `r` is `cycle_repeats` (3) turns for periods to 3, half a turn
    less from period 4 and a turn less from period 9: a long cycle is less likely by chance. Equal
    means: call, outcome and epoch; so a cycle that changes anything is none. Waits and parallel
    duplicates are passed over; what was not captured breaks the cycle.

    Source: DESIGN "Identity of a call", last rule; FEATURES C3.
    """

    name = "cycle"
    __slots__ = ("_calls", "_last_round", "_need", "_place", "_runs", "_symbols")

    def __init__(self, settings: Settings) -> None:
        longest = settings.cycle_max_period
        self._symbols: list[int | None] = [None] * longest
        self._calls: list[int] = [0] * longest
        self._runs = [0] * (longest + 1)
        self._need = [0, 0] + [
            _calls_needed(period, settings.cycle_repeats) for period in range(2, longest + 1)
        ]
        self._place = 0
        self._last_round = -1

    def user_turn(self) -> None:
        self._runs = [run // 2 for run in self._runs]

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waiting:
            return None
        if evidence.call is None or evidence.outcome is None:
            self._runs = [0] * len(self._runs)
            self._push(None, 0)
            return None
        symbol = hash((evidence.call, evidence.outcome, evidence.epoch))
        symbols = self._symbols
        if evidence.round == self._last_round and symbol in symbols:
            return None
        self._last_round = evidence.round
        found = self._advance(symbol) if symbol in symbols else self._break()
        self._push(symbol, evidence.call)
        return self._detection(found, evidence) if found else None

    def _break(self) -> int:
        if any(self._runs):
            self._runs = [0] * len(self._runs)
        return 0

    def _advance(self, symbol: int) -> int:
        """Period of the shortest cycle that this call completes; 0 for none."""
        symbols, runs, longest = self._symbols, self._runs, len(self._symbols)
        found = 0
        for period in range(1, longest + 1):
            if symbols[(self._place - period) % longest] == symbol:
                runs[period] += 1
                if period > 1 and not found and runs[period] >= self._need[period]:
                    found = period
            else:
                runs[period] = 0
        # A run of one and the same call also has every other period; it is a repeat, no cycle.
        return 0 if runs[1] else found

    def _push(self, symbol: int | None, call: int) -> None:
        self._symbols[self._place] = symbol
        self._calls[self._place] = call
        self._place = (self._place + 1) % len(self._symbols)

    def _detection(self, period: int, evidence: Evidence) -> Detection:
        longest = len(self._calls)
        keys = frozenset(
            self._calls[(self._place - back) % longest] for back in range(1, period + 1)
        )
        turns = self._runs[period] / period + 1
        threshold = self._need[period] / period + 1
        return Detection(
            detector=self.name,
            reason="cycle",
            severity=Severity.CRITICAL if turns >= threshold + 1 else Severity.WARNING,
            confidence=min(0.99, 0.85 + 0.04 * (turns - threshold)),
            keys=keys,
            count=round(turns, 2),
            threshold=round(threshold, 2),
            message=f"a cycle of {period} calls that ends with {evidence.tool!r} went round "
            f"{turns:.1f} times with equal arguments and equal outcomes",
            period=period,
            max_action=Action.HINT if evidence.guessed else Action.ABORT,
        )


def _calls_needed(period: int, repeats: float) -> int:
    less = 1.0 if period >= _LONG else 0.5 if period >= _MIDDLE else 0.0
    return max(round((repeats - less - 1) * period), period)
