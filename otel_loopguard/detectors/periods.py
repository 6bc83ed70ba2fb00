"""Cycles of every period in a sequence of symbols, in constant memory."""

from __future__ import annotations

from collections.abc import Sequence


class Periods:
    """Counts, for each period, how long a sequence has been repeating itself.

    `m[p]` grows while a symbol equals the one `p` before it and falls to 0 otherwise, so that `r`
    turns of a cycle of `p` are `m[p] >= (r - 1) * p`. O(longest) per symbol, O(1) for one that is
    not among the newest.

    Args:
        need: By period, the least `m[p]` that makes a cycle; 0 for a period that is not looked
            for. Its first entry is not used; its last one is the longest period.

    Source: DESIGN "Identity of a call", last rule.
    """

    __slots__ = ("_need", "_place", "_runs", "_symbols")

    def __init__(self, need: Sequence[int]) -> None:
        longest = len(need) - 1
        self._need = need
        self._symbols: list[int | None] = [None] * longest
        self._runs = [0] * (longest + 1)
        self._place = 0

    def __contains__(self, symbol: int) -> bool:
        """Whether a symbol is among the newest, as many as the longest period."""
        return symbol in self._symbols

    def run(self, period: int) -> int:
        """How many symbols in a row equalled the one a period before them."""
        return self._runs[period]

    def take(self, symbol: int | None) -> int:
        """Takes the next symbol; None equals nothing.

        Returns:
            The shortest period that has run for as long as it needs; 0 for none.
        """
        found = 0
        if symbol is not None and symbol in self._symbols:
            found = self._advanced(symbol)
        else:
            self.start_over()
        self._symbols[self._place] = symbol
        self._place = (self._place + 1) % len(self._symbols)
        return found

    def start_over(self) -> None:
        """Forgets what has run; the newest symbols stay."""
        if any(self._runs):
            self._runs = [0] * len(self._runs)

    def halve(self) -> None:
        """What has run weighs half."""
        self._runs = [run // 2 for run in self._runs]

    def _advanced(self, symbol: int) -> int:
        symbols, runs, need, longest = self._symbols, self._runs, self._need, len(self._symbols)
        found = 0
        for period in range(1, longest + 1):
            if symbols[(self._place - period) % longest] != symbol:
                runs[period] = 0
                continue
            runs[period] += 1
            if not found and 0 < need[period] <= runs[period]:
                found = period
        # One and the same symbol also has every other period; it is a cycle of one.
        return 0 if runs[1] and found > 1 else found
