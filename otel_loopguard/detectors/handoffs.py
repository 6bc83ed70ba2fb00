"""Work that agents hand back and forth."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action
from otel_loopguard.core.decision import HUMAN, AgentsInCycle, Severity
from otel_loopguard.core.evidence import Exchange
from otel_loopguard.detectors.base import TABLE, BaseDetector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings

# Up to this share of new text next to nothing came back: names, dates and an opening sentence.
_NOTHING: Final = 1 / 3
_EDITED: Final = 2 / 3
"""Share that counts of content that was not new, if a file was changed: the next item of a plan is
a new one, even if its tests pass as before."""
# Without times, steps within which exchanges make one cycle: about what a team does in ten minutes.
WINDOW_STEPS: Final = 100


class Level(IntEnum):
    """Severity of a cycle of agents."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


# Exchanges, less what was new, from which a cycle is that bad: two more than the three that a hint
# takes, and then as many again as it took. By the twelfth a team has been told twice.
_STARTS: Final = ((12.0, Level.CRITICAL), (8.0, Level.HIGH), (5.0, Level.MEDIUM))


class Response(NamedTuple):
    """Response to a cycle."""

    intervention: str
    severity: Severity
    max_action: Action
    unanswered: Action | None = None


class Responses:
    """Chooses the response to a cycle by its count and by what was tried before.

    Low and medium: break the cycle. High: give context. Critical, or no end after the same
    response: ask a person. That pauses the run if a person can be reached; otherwise the hand-off
    is denied, or the run aborted at a critical level if at most a third of what came back was new.
    """

    __slots__ = ("_escalate_at", "_given", "_low", "_patience")

    def __init__(self, settings: Settings) -> None:
        self._low = settings.tuning.exchange.low
        self._escalate_at = Level[settings.tuning.exchange.escalate_at.upper()]
        self._patience = settings.tuning.exchange.patience
        # By loop: the newest intervention, and how often it was given in a row.
        self._given: dict[int, tuple[str, int]] = {}

    def get(self, loop: int, count: float, news: float) -> Response | None:
        """The response that a cycle needs now; None if it is no cycle yet."""
        if count <= self._low:
            self._given.pop(loop, None)
            return None
        level = self.level(count)
        intervention = "break_cycle" if level < Level.HIGH else "inject_context"
        before, times = self._given.get(loop, (intervention, 0))
        times = times + 1 if before == intervention else 1
        keep(self._given, loop, (intervention, times), 32)
        return self.at(level, news, escalate=times > self._patience)

    def at(self, level: Level, news: float, *, escalate: bool) -> Response:
        """The response to a level."""
        if escalate or level >= self._escalate_at:
            critical = level is Level.CRITICAL
            severity = Severity.FATAL if critical else Severity.CRITICAL
            ends = Action.ABORT if critical and news <= _NOTHING else Action.DENY
            return Response(HUMAN, severity, Action.PAUSE, ends)
        if level < Level.HIGH:
            return Response("break_cycle", Severity.WARNING, Action.STEER)
        return Response("inject_context", Severity.CRITICAL, Action.ASK)

    def level(self, count: float) -> Level:
        """The level of a cycle with so many exchanges."""
        return next((level for start, level in _STARTS if count >= start), Level.LOW)

    def clear(self) -> None:
        """Forgets what was given."""
        self._given.clear()


# Fewer words ("go on", "please check it") say no topic.
_FEW: Final = 3
# As many words, and words with digits or names, as an exchange keeps: of longer texts only the
# smallest keys are known.
_FULL: Final = 64
_ITEMS: Final = 16


def is_same_topic(before: Exchange, now: Exchange, overlap: float) -> bool:
    """True if two exchanges are about the same work, by the share of words in common.

    Healthy teams are protected: a list that is worked off, a next item, or nearly the same words
    with other names on each side (one form, filled in for the next item) are different work.
    """
    if len(before.words) < _FEW or len(now.words) < _FEW or _goes_on(before, now):
        return False
    one, other = set(before.words), set(now.words)
    union = one | other
    if len(one) >= _FULL or len(other) >= _FULL:
        union = set(sorted(union)[:_FULL])
    common = len(one & other & union) / len(union)
    # From seven tenths on it is a form: two words of ten are the item that it is filled in for.
    return common >= overlap and not (common >= 0.7 and _differ(before.names, now.names))


def is_reworded(before: Exchange, now: Exchange) -> bool:
    """True if half of the content words of either instruction occur in both."""
    least = min(len(before.terms), len(now.terms))
    if least < _FEW or _goes_on(before, now) or _differ(before.names, now.names):
        return False
    return 2 * len(before.terms & now.terms) >= least


def _goes_on(before: Exchange, now: Exchange) -> bool:
    """True if an instruction works off the previous one's list, or names the next number."""
    # A tenth shorter, and a fifth of it new at most: what was done was struck off.
    shrinks = now.size < 0.9 * before.size and len(before.words) < _FULL
    if shrinks and len(set(now.words) - set(before.words)) <= 0.2 * len(now.words):
        return True
    return _differ(before.numbers, now.numbers)


def _differ(one: frozenset[int], other: frozenset[int]) -> bool:
    """True if each has something that the other lacks, as far as both are completely known."""
    if len(one) >= _ITEMS or len(other) >= _ITEMS:
        return False
    return bool(one - other) and bool(other - one)


def news_between(before: Exchange, now: Exchange, *, worded: bool = False) -> float:
    """Mean novelty of what came back between two exchanges, 0 to 1; 0 if nothing did.

    What was not captured may all be new, and counts as such. With `worded` a line that an agent
    says is as new as its words.
    """
    unseen = now.unseen - before.unseen
    # What belongs to each round, a commit or a policy that is read, takes nothing from the rest.
    came = now.answers - before.answers + unseen - (now.repeats - before.repeats)
    new = now.worded - before.worded if worded else now.news - before.news
    news = min((new + unseen) / came, 1.0) if came else 0.0
    return news if now.edits == before.edits else 1 - _EDITED * (1 - news)


class _News(NamedTuple):
    """News that came back between two exchanges, 0 to 1."""

    share: float
    worded: float
    """The same for work handed on in the same words: a line is then only as new as its words."""

    def or_of(self, other: _News) -> _News:
        """News in one of the two halves."""
        return _News(max(self.share, other.share), max(self.worded, other.worded))


_NONE: Final = _News(0.0, 0.0)


def _came(before: Exchange, now: Exchange, given: Exchange | None) -> _News:
    """News between two exchanges; `given` is how the same work was handed over before."""
    share = news_between(before, now)
    if given is not None and (given.size != now.size or given.words != now.words):
        return _News(share, share)
    return _News(share, news_between(before, now, worded=True))


class _Return(NamedTuple):
    """One exchange that goes on with a cycle: when that began, and what came back."""

    step: int
    time: int
    news: _News
    silent: bool


def is_near(before: Exchange | _Return, now: Exchange, window: int) -> bool:
    """True if an exchange is within so many nanoseconds; without times, within 100 steps."""
    if before.time and now.time:
        return now.time - before.time <= window
    return now.step - before.step <= WINDOW_STEPS


class _Returns:
    """The exchanges of a cycle that lie within the window, at most 64."""

    __slots__ = ("_kept", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._kept: deque[_Return] = deque(maxlen=64)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, before: Exchange, now: Exchange, news: _News | None = None) -> None:
        """An exchange returns to an earlier one; what lies too far back from it is over.

        `news` is what came back if the mean of what lies between does not say it.
        """
        came = _came(before, now, before) if news is None else news
        self._kept.append(_Return(before.step, before.time, came, now.silent))
        while self._kept and not is_near(self._kept[0], now, self._window):
            self._kept.popleft()

    def clear(self) -> None:
        """The cycle was left."""
        self._kept.clear()

    @property
    def count(self) -> float:
        """One for the exchange that began the cycle, and each return less what came back."""
        return 1 + sum(1.0 - one.news.share for one in self._kept)

    @property
    def worded(self) -> float:
        """The same, with a line only as new as its words."""
        return 1 + sum(1.0 - one.news.worded for one in self._kept)

    @property
    def begin(self) -> int:
        """When the first exchange that something returned to was; 0 without any."""
        return self._kept[0].time if self._kept else 0

    @property
    def silent(self) -> int:
        """Number of exchanges without a word and without a call."""
        return sum(one.silent for one in self._kept)

    def news(self, count: float) -> float:
        """Mean novelty of what came back, 0 to 1, by one of the counts."""
        return 1.0 - (count - 1) / len(self._kept) if self._kept else 1.0


class _HandoffDetector(BaseDetector):
    family = "exchange"
    takes = Exchange
    absolute = True
    __slots__ = ("_responses", "_window")

    def __init__(self, settings: Settings) -> None:
        self._window = int(settings.tuning.exchange.window_s * 1e9)
        self._responses = Responses(settings)
        super().__init__(settings)

    def reset(self) -> None:
        self._responses.clear()

    def _is_same(self, before: Exchange, now: Exchange) -> bool:
        return is_same_topic(before, now, self._settings.tuning.exchange.overlap)

    def _lacks_news(self, count: float, returns: _Returns) -> bool:
        """True if on average at most `tuning.exchange.news` of what came back was new."""
        return count - 1 >= (1 - self._settings.tuning.exchange.news) * len(returns)

    def cycle(  # noqa: PLR0913
        self, rule: str, now: Exchange, loop: int, returns: _Returns, keys: frozenset[int], *,
        agents: Iterable[str | None], goes_on: bool = True, **said: Any,
    ) -> Detection | None:  # fmt: skip
        """A detection of a cycle, if its returns call for a response."""
        count, low = returns.count, self._settings.tuning.exchange.low
        goes_round = goes_on and self._lacks_news(count, returns)
        response = self._responses.get(loop, count if goes_round else 0, returns.news(count))
        if response is None:
            count = returns.worded
            sure = count > low and self._responses.level(count) >= Level.MEDIUM
            if not (goes_on and sure and self._lacks_news(count, returns)):
                return None
            # Other lines about the same may be the moves of a game: a word, late, and no more.
            response = self._responses.at(Level.LOW, returns.news(count), escalate=False)
            response = response._replace(max_action=Action.HINT)
        return self.respond(
            rule, now, response, returns.news(count), agents, returns.begin, keys=keys,
            period=len(keys), count=count, threshold=low, returns=len(returns), **said,
        )  # fmt: skip

    def respond(  # noqa: PLR0913, PLR0917
        self, rule: str, now: Exchange, response: Response, news: float,
        agents: Iterable[str | None], begin: int, **said: Any,
    ) -> Detection:  # fmt: skip
        """A detection with the response that it calls for; `begin` is when the cycle began."""
        share, names = round(100 * news), tuple(sorted({*filter(None, agents)}))
        fields: dict[str, Any] = {
            "max_action": response.max_action, "source": now.source, "agent": now.agent,
            "came": f"{share} % of what came back was new" if share else "nothing new came back",
            **said,
        }  # fmt: skip
        return self.found(
            rule, severity=response.severity, unanswered=response.unanswered,
            advice=TABLE["exchange"].wordings[response.intervention][1].format(agent=now.agent),
            intervention=response.intervention,
            among=AgentsInCycle(names, now.words.tobytes(), begin, now.time), **fields,
        )  # fmt: skip


# Handoffs to each agent among which earlier ones are looked for, of a team of six.
_EACH: Final = 4
_EARLIER: Final = 6 * _EACH
# One repeat of which nothing came back, a tenth aside.
_NOTICE: Final = 0.9
# And two, which a person who reworded a request once has not reached.
_STOP: Final = 2.0
# Content words alone are a guess: four such instructions, of the newest six, are worth one repeat.
_REWORDED: Final = 0.25
_NEWEST: Final = 6


class HandoffRepeat(_HandoffDetector):
    """Is the same work handed over again, in other words, with little news?

    Counts: earlier handoffs to an agent on the same topic, less what came back; a quarter where
    only content words are common.
    Leaves alone: news, beside calls that are as in every round; lists that are worked off; the next
    item.
    Cannot see: instructions not captured.
    """

    name = "handoff_repeat"
    __slots__ = ("_earlier", "_found")

    def reset(self) -> None:
        super().reset()
        self._earlier: deque[Exchange] = deque(maxlen=_EARLIER)
        self._found: dict[int, None] = {}

    def observe(self, exchange: Exchange) -> Detection | None:
        passed_on = bool(self._earlier) and self._earlier[-1].key == exchange.source_key
        given = [
            before
            for before in reversed(self._earlier)
            if before.key == exchange.key
            and (not before.time or is_near(before, exchange, self._window))
        ]
        self._earlier.append(exchange)
        count = weights = 0.0
        alike = times = begin = 0
        for place, before in enumerate(given):
            same = self._is_same(before, exchange)
            weight = 1.0 if same else _REWORDED if place < _NEWEST else 0.0
            if same or (weight and is_reworded(before, exchange)):
                alike, times, begin = alike + same, times + 1, before.time
                weights += weight
                count += weight * (1.0 - news_between(before, exchange))
        tuning, sensitivity = self._settings.tuning.exchange, self._settings.sensitivity
        threshold = _NOTICE / sensitivity
        if passed_on or count < threshold or count < (1 - tuning.news) * weights:
            return None
        again = exchange.key in self._found
        if not again:
            keep(self._found, exchange.key, None, _EARLIER)
        stops = again and count >= _STOP / sensitivity and alike >= 2
        news = 1 - count / weights
        response = self._responses.at(self._responses.level(alike + 1), news, escalate=stops)
        return self.respond(
            "same_instruction" if alike else "same_instruction.reworded", exchange, response, news,
            (exchange.source, exchange.agent), begin, keys=exchange.key, count=count,
            threshold=threshold, times=times + 1,
            max_action=response.max_action if response.unanswered else Action.HINT,
        )  # fmt: skip


@dataclass(slots=True)
class _Rally:
    """Exchanges of one pair that follow on each other: the newest ones, and the returns.

    `news` is what came back between the newest two.
    """

    last: Exchange
    before: tuple[Exchange, ...]
    returns: _Returns
    news: _News = _NONE


class PairCycle(_HandoffDetector):
    """Do two agents hand the same work back and forth?

    Counts: exchanges back to where the one before came from, on the topic of that direction.
    Leaves alone: turns of which either half brings news.
    Cannot see: exchanges not captured.
    """

    name = "exchange_pair"
    __slots__ = ("_rallies",)

    def reset(self) -> None:
        super().reset()
        self._rallies: dict[int, _Rally] = {}

    def observe(self, exchange: Exchange) -> Detection | None:
        if exchange.source_key is None or exchange.source_key == exchange.key:
            return None
        pair = exchange.source_key ^ exchange.key
        known = self._rallies.get(pair)
        before = () if known is None else (*known.before[1 - 2 * _EACH :], known.last)
        if known is not None and self._goes_on(known, exchange):
            news = _came(known.last, exchange, known.before[-1] if known.before else None)
            # A turn of both is news if one of them brought any: who checks may only approve.
            known.returns.add(known.last, exchange, news.or_of(known.news))
            rally = _Rally(exchange, before, known.returns, news)
        else:
            rally = _Rally(exchange, before, _Returns(self._window))
        keep(self._rallies, pair, rally, 16)
        returns = rally.returns
        return self.cycle(
            "pair_cycle.silent" if returns.silent else "pair_cycle", exchange, pair, returns,
            frozenset((exchange.key, exchange.source_key)), times=1 + len(returns),
            agents=(exchange.source, exchange.agent), silent=returns.silent,
        )  # fmt: skip

    def _goes_on(self, known: _Rally, now: Exchange) -> bool:
        if known.last.key != now.source_key or not is_near(known.last, now, self._window):
            return False
        if now.silent:
            return now.number == known.last.number + 1
        given = [one for one in known.before if one.key == now.key] if known.returns else []
        # Who takes turns among a few wordings names the same things in each of them.
        older = (one for one in given[:-1] if not _differ(one.names, now.names))
        return not given or any(self._is_same(one, now) for one in (given[-1], *older))


# Of two agents `PairCycle` is sure sooner; larger rings are rather lines that end.
_SMALLEST: Final = 3
_LARGEST: Final = 6


class RingCycle(_HandoffDetector):
    """Does the same work go around a ring of 3 to 6 agents?

    Counts: exchanges with the agent that had the one a turn before, on its topic.
    Leaves alone: turns that bring news.
    Cannot see: larger rings.
    """

    name = "exchange_ring"
    __slots__ = ("_newest", "_returns")

    def reset(self) -> None:
        super().reset()
        self._newest: deque[Exchange] = deque(maxlen=_LARGEST)
        self._returns = [_Returns(self._window) for _ in range(_LARGEST + 1)]

    def observe(self, exchange: Exchange) -> Detection | None:
        found: Detection | None = None
        for size in range(_SMALLEST, min(len(self._newest), _LARGEST) + 1):
            turn = list(self._newest)[-size:]
            returns = self._returns[size]
            if not self._comes_round(turn, exchange):
                returns.clear()
                continue
            returns.add(turn[0], exchange)
            if found is None and self._lacks_news(returns.worded, returns):
                keys, names = frozenset(one.key for one in turn), [one.agent for one in turn]
                found = self.cycle(
                    "agent_cycle", exchange, min(keys), returns, keys, agents=names,
                    ring=" -> ".join(map(repr, names)),
                )  # fmt: skip
        self._newest.append(exchange)
        return found

    def _comes_round(self, turn: list[Exchange], now: Exchange) -> bool:
        before = turn[0]
        differ = len({one.key for one in turn}) == len(turn)
        if before.key != now.key or not differ or not is_near(before, now, self._window):
            return False
        return now.silent or self._is_same(before, now)


@dataclass(slots=True)
class _Issue:
    """One topic: its newest exchanges that said something, and when each agent got it last.

    `news` is what came back between the newest two.
    """

    id: int
    last: Exchange
    returns: _Returns
    texts: list[Exchange] = field(default_factory=list[Exchange])
    holders: dict[int, Exchange] = field(default_factory=dict[int, Exchange])
    news: _News = _NONE


class TopicCycle(_HandoffDetector):
    """Is one issue passed around, whoever holds it?

    Counts: returns of a topic to an agent that had it.
    Leaves alone: a task that goes down a line; one question to many experts.
    Cannot see: a topic in ever other words.
    """

    name = "exchange_topic"
    __slots__ = ("_issues", "_number")

    def reset(self) -> None:
        super().reset()
        self._number = 0
        self._issues: list[_Issue] = []

    def observe(self, exchange: Exchange) -> Detection | None:
        issue = self._issue(exchange)
        if issue is None:
            return None
        self._hold(issue, exchange)
        holders = issue.holders
        return self.cycle(
            "topic_cycle", exchange, issue.id, issue.returns, frozenset(holders),
            agents=(one.agent for one in holders.values()), goes_on=len(holders) > 1,
        )  # fmt: skip

    def _issue(self, now: Exchange) -> _Issue | None:
        """The topic that an exchange is about, the newest last; None if that is not known."""
        for place in range(len(self._issues) - 1, -1, -1):
            issue = self._issues[place]
            if not is_near(issue.last, now, self._window):
                del self._issues[place]
            elif (
                issue.last.number == now.number - 1
                if now.silent
                else any(self._is_same(before, now) for before in issue.texts)
            ):
                self._issues.append(self._issues.pop(place))
                return issue
        if not now.words and not now.silent:
            return None
        self._number += 1
        self._issues.append(_Issue(self._number, now, _Returns(self._window)))
        del self._issues[:-8]
        return self._issues[-1]

    def _hold(self, issue: _Issue, now: Exchange) -> None:
        before = issue.holders.get(now.key)
        news = _came(issue.last, now, before)
        if before is not None and is_near(before, now, self._window):
            # Of two that take turns, as in `PairCycle`.
            pair = len(issue.holders) == 2 and before is not issue.last
            issue.returns.add(before, now, news.or_of(issue.news) if pair else None)
        keep(issue.holders, now.key, now, 8)
        issue.last, issue.news = now, news
        if not now.silent:
            issue.texts = [*issue.texts[-3:], now]
