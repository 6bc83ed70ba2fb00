"""Work that agents hand back and forth."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from otel_loopguard.core import Action, Detection, Exchange, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOPS: Final = 32
_NOTHING: Final = 1 / 3
"""Mean part of new text up to which next to nothing came back."""


class Level(IntEnum):
    """How bad a cycle of agents is (B5)."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


class Response(NamedTuple):
    """What a cycle calls for.

    Attributes:
        level: How bad it is.
        intervention: `break_cycle`, `inject_context` or `escalate_human`.
        severity: The severity of its detection.
        max_action: The strongest action that it may lead to.
        unanswered: The same where nobody could end a pause; None without one.
    """

    level: Level
    intervention: str
    severity: Severity
    max_action: Action
    unanswered: Action | None = None

    @property
    def escalates(self) -> bool:
        """Whether it puts the cycle before a human."""
        return self.intervention == "escalate_human"


_BREAK: Final = ("break_cycle", Severity.WARNING, Action.STEER)
_INJECT: Final = ("inject_context", Severity.CRITICAL, Action.ASK)
_USUAL: Final = {
    Level.LOW: _BREAK,
    Level.MEDIUM: _BREAK,
    Level.HIGH: _INJECT,
    Level.CRITICAL: _INJECT,
}


class Responses:
    """Says what a cycle calls for, by its count and by what was tried before.

    Low above `exchange_low` (3), medium from `tuning.exchange.medium` (5): break the cycle. High
    from `tuning.exchange.high` (8): give context. Critical from `tuning.exchange.critical` (12):
    put it before a human; so too from `exchange_escalate_at` on, and where the cycle goes on for
    `tuning.exchange.patience` (4) exchanges after an intervention.

    What is put before a human is paused, where a human can be reached. Where nobody could let it go
    on, the hand-off is denied; at a critical level, if no more than a third of what came back was
    new, it leads to an abort too.

    Source: FEATURES B5, B6, B7.
    """

    __slots__ = ("_escalate_at", "_from", "_given", "_low", "_patience")

    def __init__(self, settings: Settings) -> None:
        self._low = settings.exchange_low
        self._from = (
            (settings.tuning.exchange.critical, Level.CRITICAL),
            (settings.tuning.exchange.high, Level.HIGH),
            (settings.tuning.exchange.medium, Level.MEDIUM),
        )
        self._escalate_at = Level[settings.exchange_escalate_at.upper()]
        self._patience = settings.tuning.exchange.patience
        self._given: OrderedDict[int, tuple[str, int]] = OrderedDict()

    def to(self, loop: int, count: float, news: float) -> Response | None:
        """What a cycle calls for now; None if it is none yet."""
        if count <= self._low:
            self._given.pop(loop, None)
            return None
        level = self.level(count)
        return self.at(level, news, escalate=self._ignored(loop, _USUAL[level][0]))

    def at(self, level: Level, news: float, *, escalate: bool) -> Response:
        """What a level calls for."""
        if not escalate and level < self._escalate_at:
            return Response(level, *_USUAL[level])
        critical = level is Level.CRITICAL
        severity = Severity.FATAL if critical else Severity.CRITICAL
        ends = Action.ABORT if critical and news <= _NOTHING else Action.DENY
        return Response(level, "escalate_human", severity, Action.PAUSE, ends)

    def level(self, count: float) -> Level:
        """How bad a cycle of so many exchanges is."""
        return next((level for start, level in self._from if count >= start), Level.LOW)

    def forget(self) -> None:
        """A user spoke: what was tried was tried for something else."""
        self._given.clear()

    def _ignored(self, loop: int, intervention: str) -> bool:
        """Whether the cycle went on for too long after the same intervention."""
        given, times = self._given.pop(loop, (intervention, 0))
        times = times + 1 if given == intervention else 1
        self._given[loop] = (intervention, times)
        if len(self._given) > _LOOPS:
            self._given.popitem(last=False)
        return times > self._patience


def advice(intervention: str, agent: str) -> str:
    """A sentence for the runtime on what is to be done."""
    if intervention == "break_cycle":
        return f"Skip {agent!r} for now: finish this without it, or give it to another agent."
    if intervention == "inject_context":
        return (
            f"Before {agent!r} gets this again, add what was tried so far, what came of it and "
            "what is still missing."
        )
    return "Stop handing this on, and ask a human who is to finish it, and how."


_FEW: Final = 3
_FULL: Final = 64
_ITEMS: Final = 16
_TEMPLATE: Final = 0.7
_SHORTER: Final = 0.9
_ADDED: Final = 0.2
_RETURNS: Final = 64


class Topics:
    """Tells whether two exchanges are about the same, by the words that both have.

    Same: `tuning.exchange.overlap` (0.4) of their different words are common to both. Not the same,
        and
    what protects healthy teams:

    - an instruction that grew a tenth shorter and adds little (a fifth of its words): a list that
      is being worked off;
    - both have a number that the other has not: the next item of a list;
    - 0.7 of the words are common and both have a name that the other has not: one form, filled in
      for the next item.

    An exchange of which fewer than three words are known is about nothing that could be compared.

    Source: `notes/evidence.md`, lesson 6; FEATURES B1.
    """

    __slots__ = ("_overlap",)

    def __init__(self, settings: Settings) -> None:
        self._overlap = settings.tuning.exchange.overlap

    def same(self, before: Exchange, now: Exchange) -> bool:
        """Whether what was said before and what is said now is about the same."""
        if len(before.words) < _FEW or len(now.words) < _FEW:
            return False
        common = _overlap(set(before.words), set(now.words))
        if common < self._overlap or _shrinks(before, now):
            return False
        if _differ(before.numbers, now.numbers):
            return False
        return not (common >= _TEMPLATE and _differ(before.names, now.names))


def news_between(before: Exchange, now: Exchange) -> float:
    """Mean novelty of what came back between two exchanges, 0 to 1.

    What was not captured may all be new, and counts as such. 0 if nothing came back.
    """
    unseen = now.unseen - before.unseen
    came = now.answers - before.answers + unseen
    return (now.news - before.news + unseen) / came if came else 0.0


def what_came(news: float) -> str:
    """Says how much of what came back was new."""
    share = round(100 * news)
    return f"{share} % of what came back was new" if share else "nothing new came back"


class Moment(Protocol):
    """When something was: an exchange, or a part of a cycle."""

    @property
    def step(self) -> int:
        """Number of its step within the session."""
        ...

    @property
    def time(self) -> int:
        """Nanoseconds since the epoch; 0 without times."""
        ...


class Return(NamedTuple):
    """One exchange that goes on with a cycle.

    Attributes:
        step: Step of the exchange that it returns to.
        time: Its time, nanoseconds since the epoch; 0 without times.
        gained: 1 less the novelty of what came back in between.
        silent: Whether it was passed on without a word and without a call.
    """

    step: int
    time: int
    gained: float
    silent: bool


class Returns:
    """The exchanges that go on with a cycle, all of which lie within the window; 64 at most."""

    __slots__ = ("_kept", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kept: deque[Return] = deque(maxlen=_RETURNS)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, before: Exchange, now: Exchange) -> None:
        """An exchange returns to an earlier one; what lies too far back from it is over."""
        gained = 1.0 - news_between(before, now)
        self._kept.append(Return(before.step, before.time, gained, now.silent))
        while self._kept and not self._window.holds(self._kept[0], now):
            self._kept.popleft()

    def clear(self) -> None:
        """The cycle was left."""
        self._kept.clear()

    @property
    def gained(self) -> float:
        """How many there are, each less what came back."""
        return sum(one.gained for one in self._kept)

    @property
    def silent(self) -> int:
        """How many were passed on without a word and without a call."""
        return sum(one.silent for one in self._kept)

    @property
    def news(self) -> float:
        """Mean novelty of what came back, 0 to 1."""
        return 1.0 - self.gained / len(self._kept) if self._kept else 1.0


class Window:
    """How far back a cycle reaches.

    The whole of it counts, from the exchange that began it: `exchange_window_s` (600) by the times
    of the steps; `tuning.exchange.window_steps` (100) where one of
    the two has none.

    Source: FEATURES B1.
    """

    __slots__ = ("_nanoseconds", "_steps")

    def __init__(self, settings: Settings) -> None:
        self._nanoseconds = int(settings.exchange_window_s * 1e9)
        self._steps = settings.tuning.exchange.window_steps

    def holds(self, before: Moment, now: Moment) -> bool:
        """Whether an earlier exchange is near enough to one now."""
        if before.time and now.time:
            return now.time - before.time <= self._nanoseconds
        return now.step - before.step <= self._steps


def _overlap(one: set[int], other: set[int]) -> float:
    """Share of the different words that both have; of long texts as their samples tell it."""
    union = one | other
    if len(one) >= _FULL or len(other) >= _FULL:
        union = set(sorted(union)[:_FULL])
    return len(one & other & union) / len(union)


def _shrinks(before: Exchange, now: Exchange) -> bool:
    if now.size >= _SHORTER * before.size or len(before.words) >= _FULL:
        return False
    added = len(set(now.words).difference(before.words))
    return added <= _ADDED * len(now.words)


def _differ(one: frozenset[int], other: frozenset[int]) -> bool:
    """Whether each has something that the other has not, as far as both are known whole."""
    if len(one) >= _ITEMS or len(other) >= _ITEMS:
        return False
    return bool(one - other) and bool(other - one)


_EARLIER: Final = 24
_ENOUGH: Final = 2


class HandoffRepeat:
    """Counts earlier hand-offs to the same agent that say the same, by what came of them.

    Each earlier one of the newest 24, and of the last `exchange_window_s` (600) where times are
    known, counts 1 less the mean novelty of what came back since: work that brings news is no loop,
    however it is worded. A detection from `tuning.exchange.repeat_notice` (0.9), if on average no
    more than `tuning.exchange.news` (0.65) of what came back was new. It hints at most; from
    `tuning.exchange.repeat_stop` (2.0) and three alike, and not at the first sign, it may lead to a
    pause, or to a deny where nobody could end one. Without the text of the instruction nothing
    counts; what an agent hands on that was handed to it just before is left to the detectors of
    cycles.

    Source: `notes/evidence.md`, lesson 6 (Magentic-One runs); FEATURES B1, B4.
    """

    name = "handoff_repeat"
    family = "exchange"
    takes = Exchange
    __slots__ = (
        "_earlier",
        "_most_news",
        "_notice",
        "_responses",
        "_stop",
        "_told",
        "_topics",
        "_window",
    )

    def __init__(self, settings: Settings) -> None:
        self._topics = Topics(settings)
        self._window = Window(settings)
        self._responses = Responses(settings)
        self._notice = settings.tuning.exchange.repeat_notice / settings.sensitivity
        self._stop = settings.tuning.exchange.repeat_stop / settings.sensitivity
        self._most_news = settings.tuning.exchange.news
        self._earlier: deque[Exchange] = deque(maxlen=_EARLIER)
        self._told: dict[int, None] = {}

    def user_turn(self) -> None:
        """A user spoke: what was asked before was asked for something else."""
        self._earlier.clear()
        self._told.clear()

    def observe(self, exchange: Exchange) -> Detection | None:
        """Takes one exchange; gives a detection if it shows a loop."""
        passed_on = bool(self._earlier) and self._earlier[-1].key == exchange.source_key
        count, alike = 0.0, 0
        for before in self._earlier:
            late = before.time and not self._window.holds(before, exchange)
            if before.key == exchange.key and not late and self._topics.same(before, exchange):
                alike += 1
                count += 1.0 - news_between(before, exchange)
        self._earlier.append(exchange)
        if passed_on or count < self._notice or count < (1 - self._most_news) * alike:
            return None
        return self._detection(exchange, count, alike)

    def _detection(self, exchange: Exchange, count: float, alike: int) -> Detection:
        told = exchange.key in self._told
        self._told[exchange.key] = None
        if len(self._told) > _EARLIER:
            del self._told[next(iter(self._told))]
        stops = told and count >= self._stop and alike >= _ENOUGH
        news = 1 - count / alike
        response = self._responses.at(self._responses.level(alike + 1), news, escalate=stops)
        return Detection(
            detector=self.name,
            reason="same_instruction",
            severity=response.severity,
            confidence=min(0.85, 0.55 + 0.05 * count),
            keys=frozenset({exchange.key}),
            count=round(count, 2),
            threshold=self._notice,
            message=f"{exchange.agent!r} was given nearly the same instruction {alike + 1} times, "
            f"and {what_came(news)}",
            max_action=Action.PAUSE if response.escalates else Action.HINT,
            unanswered=response.unanswered,
            advice=advice(response.intervention, exchange.agent),
            intervention=response.intervention,
        )


_PAIRS: Final = 16


@dataclass(slots=True)
class _Rally:
    """Exchanges of one pair that follow on each other.

    Attributes:
        last: The newest.
        before: The one before it, in the other direction; None if it is the first.
        returns: Those that go on with it, within the window.
    """

    last: Exchange
    before: Exchange | None
    returns: Returns

    @property
    def number(self) -> int:
        """How many exchanges there are."""
        return 1 + len(self.returns)

    @property
    def count(self) -> float:
        """The same, each less what came back before it."""
        return 1 + self.returns.gained


class PairCycle:
    """Counts exchanges that go to and fro between two agents on one topic.

    Each must go back where the one before came from, all within one window, and be on the topic of
    the last one in its own direction, or passed on without a word and without a call. Each counts 1
    less the mean novelty of what came back before it. A detection above `exchange_low` (3), if on
    average no more than `tuning.exchange.news` (0.65) of what came back was new. It rests on two
    names and on the words of two exchanges, and goes on where `exchange_ring` and `exchange_topic`
    fail.

    Source: FEATURES B2, B9.
    """

    name = "exchange_pair"
    family = "exchange"
    takes = Exchange
    __slots__ = ("_least", "_low", "_rallies", "_responses", "_topics", "_window")

    def __init__(self, settings: Settings) -> None:
        self._topics = Topics(settings)
        self._window = Window(settings)
        self._responses = Responses(settings)
        self._low = settings.exchange_low
        self._least = 1 - settings.tuning.exchange.news
        self._rallies: OrderedDict[int, _Rally] = OrderedDict()

    def user_turn(self) -> None:
        """A user spoke: what was handed about before was about something else."""
        self._rallies.clear()
        self._responses.forget()

    def observe(self, exchange: Exchange) -> Detection | None:
        """Takes one exchange; gives a detection if it shows a cycle of two."""
        if exchange.source_key is None or exchange.source_key == exchange.key:
            return None
        pair = exchange.source_key ^ exchange.key
        rally = self._rally(self._rallies.pop(pair, None), exchange)
        self._rallies[pair] = rally
        if len(self._rallies) > _PAIRS:
            self._rallies.popitem(last=False)
        count = rally.count if rally.count - 1 >= self._least * (rally.number - 1) else 0
        response = self._responses.to(pair, count, rally.returns.news)
        return None if response is None else self._detection(exchange, rally, response)

    def _rally(self, known: _Rally | None, now: Exchange) -> _Rally:
        if known is None or not self._goes_on(known, now):
            return _Rally(now, None, Returns(self._window))
        known.returns.add(known.last, now)
        return _Rally(now, known.last, known.returns)

    def _goes_on(self, known: _Rally, now: Exchange) -> bool:
        if known.last.key != now.source_key or not self._window.holds(known.last, now):
            return False
        if now.silent:
            return now.number == known.last.number + 1
        return known.before is None or self._topics.same(known.before, now)

    def _detection(self, now: Exchange, rally: _Rally, response: Response) -> Detection:
        return Detection(
            detector=self.name,
            reason="pair_cycle",
            severity=response.severity,
            confidence=min(0.9, 0.6 + 0.03 * rally.count),
            keys=frozenset({now.key, now.source_key or now.key}),
            count=round(rally.count, 2),
            threshold=self._low,
            message=f"{now.source!r} and {now.agent!r} handed the same work back and forth "
            f"{rally.number} times, {_came(rally)}",
            period=2,
            max_action=response.max_action,
            unanswered=response.unanswered,
            advice=advice(response.intervention, now.agent),
            intervention=response.intervention,
        )


def _came(rally: _Rally) -> str:
    if silent := rally.returns.silent:
        return f"{silent} of them without a word and without a call"
    return f"and {what_came(rally.returns.news)}"


_SMALLEST: Final = 3
_LARGEST: Final = 6


class RingCycle:
    """Counts exchanges that repeat those of a turn ago, for rings of 3 to 6 agents.

    For each size: the exchange goes to the agent that got the one a turn ago, on its topic (or was
    passed on without a word and without a call), all agents of a turn are different, and all of it
    lies within one window. Each counts 1 less the mean novelty of what came back during the turn;
    where one does not fit, the count begins again. A detection above `exchange_low` (3), the first
    exchange that came round among them counted as one more, if on average no more than
    `tuning.exchange.news` (0.65) of what came back was new.

    Source: FEATURES B3; the counters are those of `cycle` (DESIGN.md).
    """

    name = "exchange_ring"
    family = "exchange"
    takes = Exchange
    __slots__ = (
        "_least", "_low", "_newest", "_responses", "_returns", "_topics", "_window",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._topics = Topics(settings)
        self._window = Window(settings)
        self._responses = Responses(settings)
        self._low = settings.exchange_low
        self._least = 1 - settings.tuning.exchange.news
        self._newest: deque[Exchange] = deque(maxlen=_LARGEST)
        self._returns = [Returns(self._window) for _ in range(_LARGEST + 1)]

    def user_turn(self) -> None:
        """A user spoke: what went round before was about something else."""
        self._newest.clear()
        for returns in self._returns:
            returns.clear()
        self._responses.forget()

    def observe(self, exchange: Exchange) -> Detection | None:
        """Takes one exchange; gives a detection if it shows a ring."""
        found: Detection | None = None
        for size in range(_SMALLEST, min(len(self._newest), _LARGEST) + 1):
            if not self._comes_round(size, exchange):
                self._returns[size].clear()
                continue
            self._returns[size].add(self._newest[-size], exchange)
            found = found or self._ring(size, exchange)
        self._newest.append(exchange)
        return found

    def _comes_round(self, size: int, now: Exchange) -> bool:
        before = self._newest[-size]
        if before.key != now.key or not self._window.holds(before, now):
            return False
        if len({one.key for one in self._turn(size)}) < size:
            return False
        return now.silent or self._topics.same(before, now)

    def _turn(self, size: int) -> list[Exchange]:
        """The exchanges of the newest turn."""
        return list(self._newest)[-size:]

    def _ring(self, size: int, now: Exchange) -> Detection | None:
        returns = self._returns[size]
        count = 1 + returns.gained
        if count - 1 < self._least * len(returns):
            return None
        keys = frozenset(one.key for one in self._turn(size))
        response = self._responses.to(min(keys), count, returns.news)
        return None if response is None else self._detection(size, now, count, response)

    def _detection(self, size: int, now: Exchange, count: float, response: Response) -> Detection:
        turn = self._turn(size)
        names = " -> ".join(repr(one.agent) for one in turn)
        returns = self._returns[size]
        return Detection(
            detector=self.name,
            reason="agent_cycle",
            severity=response.severity,
            confidence=min(0.9, 0.6 + 0.03 * count),
            keys=frozenset(one.key for one in turn),
            count=round(count, 2),
            threshold=self._low,
            message=f"the same work went round {names} and came back {len(returns)} times to an "
            f"agent that had it a turn before, and {what_came(returns.news)}",
            period=size,
            max_action=response.max_action,
            unanswered=response.unanswered,
            advice=advice(response.intervention, now.agent),
            intervention=response.intervention,
        )


_ISSUES: Final = 8
_HOLDERS: Final = 8
_SAYINGS: Final = 4


@dataclass(slots=True)
class _Issue:
    """One topic, and who held it.

    Attributes:
        id: Its identity among the topics of the session.
        sayings: The newest exchanges on it that said something.
        holders: When each agent got it last, by the agent's key.
        last: The newest exchange on it.
        returns: Those that went to an agent that had held it, within the window.
    """

    id: int
    last: Exchange
    returns: Returns
    sayings: list[Exchange] = field(default_factory=list[Exchange])
    holders: OrderedDict[int, Exchange] = field(default_factory=OrderedDict[int, Exchange])

    @property
    def count(self) -> float:
        """Its returns, each less what came back since, and one for the start."""
        return 1 + self.returns.gained


class TopicCycle:
    """Counts how often one topic comes back to an agent that held it before.

    An exchange belongs to the topic of one of its newest four sayings, or, passed on without a word
    and without a call, to the topic of the exchange before. Each return counts 1 less the mean
    novelty of what came back since that agent held it. A detection above `exchange_low` (3), if two
    agents or more got it within the window, and on average no more than `tuning.exchange.news`
    (0.65) of what came back was new. A task that goes down a line of agents returns to nobody and
    does not count; nor does work that is given to one and the same agent (`handoff_repeat`).

    Source: FEATURES B4.
    """

    name = "exchange_topic"
    family = "exchange"
    takes = Exchange
    __slots__ = ("_issues", "_least", "_low", "_number", "_responses", "_topics", "_window")

    def __init__(self, settings: Settings) -> None:
        self._topics = Topics(settings)
        self._window = Window(settings)
        self._responses = Responses(settings)
        self._low = settings.exchange_low
        self._least = 1 - settings.tuning.exchange.news
        self._number = 0
        self._issues: list[_Issue] = []

    def user_turn(self) -> None:
        """A user spoke: what was passed around before was something else."""
        self._issues.clear()
        self._responses.forget()

    def observe(self, exchange: Exchange) -> Detection | None:
        """Takes one exchange; gives a detection if its topic is passed around."""
        issue = self._issue(exchange)
        if issue is None:
            return None
        self._hold(issue, exchange)
        returns = issue.returns
        moving = len(issue.holders) > 1 and issue.count - 1 >= self._least * len(returns)
        response = self._responses.to(issue.id, issue.count if moving else 0, returns.news)
        return None if response is None else self._detection(exchange, issue, response)

    def _issue(self, now: Exchange) -> _Issue | None:
        """The topic that an exchange is about, the newest last; None if that is not known."""
        for place in range(len(self._issues) - 1, -1, -1):
            issue = self._issues[place]
            if not self._window.holds(issue.last, now):
                del self._issues[place]
            elif self._about(issue, now):
                self._issues.append(self._issues.pop(place))
                return issue
        if not now.words and not now.silent:
            return None
        self._number += 1
        self._issues.append(_Issue(self._number, now, Returns(self._window)))
        del self._issues[:-_ISSUES]
        return self._issues[-1]

    def _about(self, issue: _Issue, now: Exchange) -> bool:
        if now.silent:
            return issue.last.number == now.number - 1
        return any(self._topics.same(before, now) for before in issue.sayings)

    def _hold(self, issue: _Issue, now: Exchange) -> None:
        before = issue.holders.pop(now.key, None)
        if before is not None and self._window.holds(before, now):
            issue.returns.add(before, now)
        issue.holders[now.key] = now
        if len(issue.holders) > _HOLDERS:
            issue.holders.popitem(last=False)
        issue.last = now
        if not now.silent:
            issue.sayings = [*issue.sayings[1 - _SAYINGS :], now]

    def _detection(self, now: Exchange, issue: _Issue, response: Response) -> Detection:
        came = what_came(issue.returns.news)
        return Detection(
            detector=self.name,
            reason="topic_cycle",
            severity=response.severity,
            confidence=min(0.85, 0.55 + 0.03 * issue.count),
            keys=frozenset(issue.holders),
            count=round(issue.count, 2),
            threshold=self._low,
            message=f"the same topic was passed around {len(issue.holders)} agents and came back "
            f"{len(issue.returns)} times to one that had it before, and {came}",
            period=len(issue.holders),
            max_action=response.max_action,
            unanswered=response.unanswered,
            advice=advice(response.intervention, now.agent),
            intervention=response.intervention,
        )
