"""Counters and windows that detectors share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_loopguard.core import Evidence

ITEM: Final = 0.22
"""What an item that does not exist weighs, among many that are asked for: 14 make three."""


class Periods:
    """Counts, for each period, how long a sequence has been repeating itself.

    `runs[p]` grows while a symbol equals the one `p` before it and falls to 0 otherwise, so that
    `r` turns of a cycle of `p` are `runs[p] >= (r - 1) * p`. O(longest period) per symbol, O(1) for
    one that is not among the newest.
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

    def add(self, symbol: int | None) -> int:
        """Adds a symbol (None equals nothing); gives the period that is found, or 0."""
        found = 0
        if symbol is not None and symbol in self._symbols:
            found = self._advance(symbol)
        else:
            self.restart()
        self._symbols[self._place] = symbol
        self._place = (self._place + 1) % len(self._symbols)
        return found

    def restart(self) -> None:
        """Sets all runs to 0; the newest symbols stay."""
        if any(self._runs):
            self._runs = [0] * len(self._runs)

    def halve(self) -> None:
        """Halves all runs."""
        self._runs = [run // 2 for run in self._runs]

    def _advance(self, symbol: int) -> int:
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


class LeakyCounter:
    """Counts a sign of trouble for each of 32 agents; a parallel round counts once."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: BoundedDict[int, tuple[float, int]] = BoundedDict(32)

    def add(self, evidence: Evidence, weight: float = 1.0) -> float:
        """Counts a call that shows the sign; gives the count of its agent."""
        count, last = self._counts.get(evidence.agent, (0.0, -1))
        count += weight if evidence.round != last else 0.0
        self._counts[evidence.agent] = count, evidence.round
        return count

    def leak(self, left: float, agent: int | None = None) -> None:
        """Leaves a part of what was counted of one agent, or of all."""
        for key in tuple(self._counts) if agent is None else (agent,):
            count, last = self._counts.get(key, (0.0, -1))
            if count:
                self._counts[key] = count * left, last


_FADE: Final = 0.985
_WINDOW: Final = 50
_MAXIMUM: Final = 50
_EARLIER_EPOCH: Final = 1 / 3


@dataclass(slots=True)
class Counted:
    """Calls counted under one key; `time` and `sample` are those of the last one."""

    count: float
    tools: frozenset[str]
    calls: frozenset[int | None]
    time: int
    epoch: int
    round: int
    number: int
    sample: str


class DecayingCounter:
    """Counts calls by key, in equivalents of one repeat.

    A count fades by 1.5 % per call in between and is forgotten after 50 calls without it; what was
    counted before a change of the world counts a third. A parallel round counts once.
    """

    __slots__ = ("_counted", "_earlier", "_once")

    def __init__(self, *, across_changes: bool = False) -> None:
        self._earlier = 1.0 if across_changes else _EARLIER_EPOCH
        # What was counted once is kept as its evidence: most answers never come again.
        self._once: BoundedDict[Hashable, tuple[Evidence, float]] = BoundedDict(_MAXIMUM)
        self._counted: BoundedDict[Hashable, Counted] = BoundedDict(_MAXIMUM)

    def add(self, key: Hashable, evidence: Evidence, weight: float) -> Counted | None:
        """Counts a call; None if it is the first of its key."""
        counted = self._counted.pop(key, None)
        once = self._once.pop(key, None)
        if counted is None and once is not None:
            first, count = once
            counted = Counted(
                count, frozenset({first.tool}), frozenset({first.call}), first.time, first.epoch,
                first.round, first.number, first.sample,
            )  # fmt: skip
        if counted is None or evidence.number - counted.number > _WINDOW:
            self._once[key] = evidence, weight
            return None
        count = counted.count * _FADE ** max(evidence.number - counted.number - 1, 0)
        if evidence.epoch != counted.epoch:
            count *= self._earlier
        if evidence.round != counted.round:
            count += weight
        counted.count, counted.epoch, counted.time = count, evidence.epoch, evidence.time
        counted.round, counted.number = evidence.round, evidence.number
        counted.sample = evidence.sample
        if len(counted.tools) < 8:
            counted.tools |= {evidence.tool}
        if len(counted.calls) < 8:
            counted.calls |= {evidence.call}
        self._counted[key] = counted
        return counted

    def last(self, key: Hashable) -> Counted | Evidence | None:
        """The last call counted under a key: its `time`, `epoch` and `sample`."""
        counted = self._counted.get(key)
        if counted is not None:
            return counted
        once = self._once.get(key)
        return None if once is None else once[0]

    def decay_others(self, tool: str, key: Hashable, factor: float) -> None:
        """A tool answered something else: lowers its counts under all other keys."""
        for other, counted in self._counted.items():
            if tool in counted.tools and other != key:
                counted.count *= factor

    def forget(self, tool: str) -> bool:
        """Forgets every count that a tool is part of; whether there was one."""
        if not self._once and not self._counted:
            return False
        counted = [key for key, found in self._counted.items() if tool in found.tools]
        once = [key for key, (found, _) in self._once.items() if found.tool == tool]
        for key in counted:
            del self._counted[key]
        for key in once:
            del self._once[key]
        return bool(counted or once)

    def halve(self) -> None:
        """Halves all counts."""
        for counted in self._counted.values():
            counted.count /= 2
        for key, (evidence, weight) in [*self._once.items()]:
            self._once[key] = evidence, weight / 2


_CALLS: Final = 16


class RecentRounds:
    """The newest rounds (64 at most) within a window of calls that showed a sign."""

    __slots__ = ("_round", "_signs", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._signs: deque[tuple[int, int | None]] = deque(maxlen=64)
        self._round = -1

    def add(self, evidence: Evidence) -> int:
        """Counts a call; gives the rounds within the window."""
        signs = self._signs
        if evidence.round != self._round:
            signs.append((evidence.number, evidence.call))
        self._round = evidence.round
        while signs and evidence.number - signs[0][0] >= self._window:
            signs.popleft()
        return len(signs)

    @property
    def calls(self) -> frozenset[int]:
        """Keys of the newest 16 calls, as far as they are known."""
        return frozenset(call for _, call in list(self._signs)[-_CALLS:] if call is not None)

    @property
    def first(self) -> int:
        """Number of the oldest call."""
        return self._signs[0][0] if self._signs else 0


_SCORES: Final = 32


@dataclass(slots=True)
class _Best:
    low: float
    high: float
    tries: int
    epoch: int
    round: int


class BestScores:
    """The lowest and the highest number under each name: which way is better is not known."""

    __slots__ = ("_bests",)

    def __init__(self) -> None:
        self._bests: BoundedDict[tuple[int, str, int], _Best] = BoundedDict(_SCORES)

    def add(self, evidence: Evidence) -> tuple[int, bool] | None:
        """Tries since the best number, and whether this one is better than any before.

        None if the call measures nothing, or is the same try again.
        """
        if evidence.score is None:
            return None
        name, value = evidence.score
        key = (evidence.agent, evidence.tool, name)
        best = self._bests.get(key)
        if best is None:
            self._bests[key] = _Best(value, value, 0, evidence.epoch, evidence.round)
            return 0, False
        self._bests.move_to_end(key)
        better = not best.low <= value <= best.high
        again = evidence.round == best.round or (
            not evidence.fresh and evidence.epoch == best.epoch and not evidence.changed
        )
        best.low, best.high = min(best.low, value), max(best.high, value)
        best.epoch, best.round = evidence.epoch, evidence.round
        if again and not better:
            return None
        best.tries = 0 if better else best.tries + 1
        return best.tries, better
