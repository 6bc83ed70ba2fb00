"""Counters and windows that detectors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_loopguard.core import Evidence

ITEM: Final = 0.22
"""What an item that does not exist weighs, among many that are asked for: 14 make three."""
MASKED: Final = 0.8
"""How sure it is that calls are the same that are equal after masking what is volatile by name."""
GUESSED: Final = 0.6
"""The same of calls that are equal but for a value that only looks like a nonce."""
VALUES: Final = 0.15
"""The same of calls whose answers are equal but for ids and times in them: each may be new."""
OTHER: Final = 0.1
"""The same of another call with an equal error, or that is turned down in the same words."""


def surer(guess: float, times: int) -> float:
    """A guess after it was confirmed so often: each time takes a twentieth of the doubt."""
    return 1.0 - (1.0 - guess) * 0.95**times


class Periods:
    """Counts, for each period, how long a sequence has been repeating itself.

    The run of `p` grows while a symbol equals the one `p` before it and falls to 0 otherwise, so
    that `r` turns of a cycle of `p` are `run(p) >= (r - 1) * p`. O(longest period) per symbol, O(1)
    for one that is not among the newest. What a symbol stands for may be kept with it.
    """

    __slots__ = ("_labels", "_need", "_place", "_runs", "_symbols")

    def __init__(self, need: Sequence[int]) -> None:
        longest = len(need) - 1
        self._need = need
        self._symbols: list[int | None] = [None] * longest
        self._labels: list[Any] = [None] * longest
        self._runs: list[int] | None = None
        self._place = 0

    def __contains__(self, symbol: int) -> bool:
        """Whether a symbol is among the newest, as many as the longest period."""
        return symbol in self._symbols

    def run(self, period: int) -> int:
        """How many symbols in a row equalled the one a period before them."""
        return self._runs[period] if self._runs else 0

    def add(self, symbol: int | None, label: object = None) -> int:
        """Adds a symbol (None equals nothing); gives the period that is found, or 0."""
        place, found = self._place, 0
        if symbol is not None and symbol in self._symbols:
            found = self._advance(symbol)
        else:
            self._runs = None
        self._symbols[place], self._labels[place] = symbol, label
        self._place = (place + 1) % len(self._symbols)
        return found

    def labels(self, period: int) -> list[Any]:
        """What the symbols of the newest period stand for, in order."""
        return (self._labels[self._place :] + self._labels[: self._place])[-period:]

    def restart(self) -> None:
        """Sets all runs to 0; the newest symbols stay."""
        self._runs = None

    def halve(self) -> None:
        """Halves all runs."""
        if self._runs:
            self._runs = [run // 2 for run in self._runs]

    def _advance(self, symbol: int) -> int:
        symbols, need, longest = self._symbols, self._need, len(self._symbols)
        runs = self._runs = self._runs or [0] * (longest + 1)
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
        self._counts: dict[int, tuple[float, int, int]] = {}

    def add(self, evidence: Evidence, weight: float = 1.0) -> tuple[float, int]:
        """Counts a call that shows the sign; gives the count of its agent, and how many calls."""
        count, last, calls = self._counts.get(evidence.agent, (0.0, -1, 0))
        count += weight if evidence.round != last else 0.0
        keep(self._counts, evidence.agent, (count, evidence.round, calls + 1), 32)
        return count, calls + 1

    def leak(self, left: float, agent: int | None = None) -> None:
        """Leaves a part of what was counted of one agent, or of all."""
        for key in tuple(self._counts) if agent is None else (agent,):
            count, last, calls = self._counts.get(key, (0.0, -1, 0))
            if count:
                keep(self._counts, key, (count * left, last, calls if left else 0), 32)


_FADE: Final = 0.985
_WINDOW: Final = 50
_MAXIMUM: Final = 50
_EARLIER_EPOCH: Final = 1 / 3


@dataclass(slots=True)
class Counted:
    """Calls counted under one key; `time` and `sample` are those of the last one.

    `times` is how many they are, where `count` weighs them.
    """

    count: float
    tools: tuple[str, ...]
    calls: tuple[int | None, ...]
    time: int
    epoch: int
    round: int
    number: int
    sample: str
    times: int = 1


def _counted(weight: float, tool: str, call: int | None, *rest: Any) -> Counted:
    return Counted(weight, (tool,), (call,), *rest)


class DecayingCounter:
    """Counts calls by key, in equivalents of one repeat.

    A count fades by 1.5 % per call in between and is forgotten after 50 calls without it; what was
    counted before a change of the world counts a third. A parallel round counts once.

    Attributes:
        once: What was counted once, as weight, tool, call, and the further fields of `Counted`.
        repeated: What was counted again.
    """

    __slots__ = ("_earlier", "once", "repeated")

    def __init__(self, *, across_changes: bool = False) -> None:
        self._earlier = 1.0 if across_changes else _EARLIER_EPOCH
        # Most answers never come again: of those a tuple is enough, which no collector looks at.
        self.once: dict[Hashable, tuple[Any, ...]] = {}
        self.repeated: dict[Hashable, Counted] = {}

    def add(
        self, key: Hashable, evidence: Evidence, weight: float, sample: str = ""
    ) -> Counted | None:
        """Counts a call; None if it is the first of its key."""
        once = self.once.pop(key, None)
        counted = self.repeated.get(key) if once is None else _counted(*once)
        if counted is None or evidence.number - counted.number > _WINDOW:
            if counted is not None:
                self.repeated.pop(key, None)
            self.once[key] = (
                weight, evidence.tool, evidence.call, evidence.time, evidence.epoch,
                evidence.round, evidence.number, sample,
            )  # fmt: skip
            if len(self.once) > _MAXIMUM:
                del self.once[next(iter(self.once))]
            return None
        count = counted.count * _FADE ** max(evidence.number - counted.number - 1, 0)
        if evidence.epoch != counted.epoch:
            count *= self._earlier
        if evidence.round != counted.round:
            count += weight
        counted.times += 1
        counted.count, counted.epoch, counted.time = count, evidence.epoch, evidence.time
        counted.round, counted.number, counted.sample = evidence.round, evidence.number, sample
        if len(counted.tools) < 8 and evidence.tool not in counted.tools:
            counted.tools += (evidence.tool,)
        if len(counted.calls) < 8 and evidence.call not in counted.calls:
            counted.calls += (evidence.call,)
        keep(self.repeated, key, counted, _MAXIMUM)
        return counted

    def last(self, key: Hashable) -> Counted | None:
        """What is counted under a key; its `time`, `epoch` and `sample` are those of the last."""
        once = self.once.get(key)
        return self.repeated.get(key) if once is None else _counted(*once)

    def decay_others(self, tool: str, key: Hashable, factor: float) -> None:
        """A tool answered something else: lowers its counts under all other keys."""
        for other, counted in self.repeated.items():
            if tool in counted.tools and other != key:
                counted.count *= factor

    def forget(self, tool: str) -> bool:
        """Forgets every count that a tool is part of; whether there was one."""
        repeated = [key for key, counted in self.repeated.items() if tool in counted.tools]
        once = [key for key, found in self.once.items() if tool == found[1]]
        for key in repeated:
            del self.repeated[key]
        for key in once:
            del self.once[key]
        return bool(repeated or once)

    def halve(self) -> None:
        """Halves all counts."""
        for counted in self.repeated.values():
            counted.count /= 2
        for key, (weight, *rest) in self.once.items():
            self.once[key] = (weight / 2, *rest)


_SIGNS: Final = 64
_CALLS: Final = 16


class RecentRounds:
    """The newest rounds (64 at most) within a window of calls that showed a sign."""

    __slots__ = ("_round", "_signs", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._signs: list[tuple[int, int | None]] = []
        self._round = -1

    def add(self, evidence: Evidence) -> int:
        """Counts a call; gives the rounds within the window."""
        signs = self._signs
        if evidence.round != self._round:
            signs.append((evidence.number, evidence.call))
            del signs[:-_SIGNS]
        self._round = evidence.round
        while signs and evidence.number - signs[0][0] >= self._window:
            del signs[0]
        return len(signs)

    @property
    def calls(self) -> frozenset[int]:
        """Keys of the newest 16 calls, as far as they are known."""
        return frozenset(call for _, call in self._signs[-_CALLS:] if call is not None)

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
        self._bests: dict[tuple[int, str, int], _Best] = {}

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
            best = _Best(value, value, 0, evidence.epoch, evidence.round)
            keep(self._bests, key, best, _SCORES)
            return 0, False
        keep(self._bests, key, best, _SCORES)
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
