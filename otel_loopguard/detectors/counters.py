"""Counters and windows that detectors share."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_loopguard.core import Evidence


def answer_of(evidence: Evidence) -> str:
    """What came back, as `906-character answer`, `empty answer` or `61-character error`."""
    size = f"{evidence.outcome_size:,}-character" if evidence.outcome_size else "empty"
    return f"{size} {'error' if evidence.error else 'answer'}"


def error_of(evidence: Evidence) -> str:
    """What kind of error it was, as `transient error`; `error` where that cannot be told."""
    known = evidence.error_class is not ErrorClass.UNKNOWN
    return f"{evidence.error_class} error" if known else "error"


class Periods:
    """Counts, for each period, how long a sequence has been repeating itself.

    `m[p]` grows while a symbol equals the one `p` before it and falls to 0 otherwise, so that `r`
    turns of a cycle of `p` are `m[p] >= (r - 1) * p`. O(longest) per symbol, O(1) for one that is
    not among the newest.

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
        """Takes the next symbol; None equals nothing."""
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


_AGENTS: Final = 32
ITEM: Final = 0.22
"""What an item that is not there weighs, among many that are asked for: 14 make three."""


class LeakyCounters:
    """A row for each agent: what one does says nothing of another."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, LeakyCounter] = {}

    def of(self, agent: int) -> LeakyCounter:
        """The row of an agent; of more than 32 the one that began first is forgotten."""
        row = self._rows.get(agent)
        if row is None:
            row = self._rows[agent] = LeakyCounter()
            if len(self._rows) > _AGENTS:
                del self._rows[next(iter(self._rows))]
        return row

    def leak(self, left: float) -> None:
        """Leaves a part of what was counted of every agent."""
        for row in self._rows.values():
            row.leak(left)


class LeakyCounter:
    """Counts signs of trouble; a parallel round counts once.

    Attributes:
        count: What is counted now.
    """

    __slots__ = ("_round", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self._round = -1

    def add(self, number: int, weight: float = 1.0) -> float:
        """Counts a call of a round; gives what is counted now."""
        if number != self._round:
            self.count += weight
        self._round = number
        return self.count

    def leak(self, left: float) -> None:
        """Leaves a part of what was counted; 0 for nothing."""
        self.count *= left


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


class DecayingCounter:
    """Counts by key, in equivalents of one repeat.

    A count fades by 1.5 % per call in between and is forgotten after 50 calls without it; what was
    counted before a change of the world counts a third. A parallel round counts once.

    Source: `notes/evidence.md`, lessons 1 and 4.
    """

    __slots__ = ("_earlier", "_once", "_tallied")

    def __init__(self, *, across_changes: bool = False) -> None:
        self._earlier = 1.0 if across_changes else _EARLIER_EPOCH
        # What was counted once is kept as its evidence: most answers never come again.
        self._once: dict[Hashable, tuple[Evidence, float]] = {}
        self._tallied: dict[Hashable, Tallied] = {}

    def add(self, key: Hashable, evidence: Evidence, weight: float) -> Tallied | None:
        """Counts one call under a key."""
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
        """A tool answered otherwise: what was counted of it elsewhere weighs less."""
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


_CALLS: Final = 16


class Sign(NamedTuple):
    """A call that showed the sign.

    Attributes:
        number: Its number in the session.
        call: Its key; None if its arguments are not known.
    """

    number: int
    call: int | None


class Recent:
    """Remembers the newest rounds that showed a sign; a parallel round counts once."""

    __slots__ = ("_round", "_signs", "_window")

    def __init__(self, window: int, most: int) -> None:
        self._window = window
        self._signs: deque[Sign] = deque(maxlen=most)
        self._round = -1

    def add(self, number: int, moment: int, call: int | None) -> int:
        """Counts a call; gives the rounds within the window."""
        signs = self._signs
        if moment != self._round:
            signs.append(Sign(number, call))
        self._round = moment
        while signs and number - signs[0].number >= self._window:
            signs.popleft()
        return len(signs)

    @property
    def calls(self) -> frozenset[int]:
        """Keys of the newest calls that are remembered, 16 at most."""
        return frozenset(sign.call for sign in list(self._signs)[-_CALLS:] if sign.call is not None)

    @property
    def first(self) -> int:
        """Number of the oldest call that is remembered."""
        return self._signs[0].number if self._signs else 0

    @property
    def last(self) -> int:
        """Number of the newest call that is remembered."""
        return self._signs[-1].number if self._signs else 0


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
        """Counts one measurement; None if the call measures nothing, or is the same try again."""
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
