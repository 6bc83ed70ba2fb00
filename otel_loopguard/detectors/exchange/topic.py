"""Is one issue passed around, whoever holds it, and nothing new comes of it?"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Detection, Exchange
from otel_loopguard.detectors.exchange.severity import Response, Responses, advice
from otel_loopguard.detectors.exchange.topics import Returns, Topics, Window, what_came

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

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
    agents or more got it within the window, and on average no more than `exchange_news` (0.65) of
    what came back was new. A task that goes down a line of agents returns to nobody and does not
    count; nor does work that is given to one and the same agent (`handoff_repeat`).

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
        self._least = 1 - settings.exchange_news
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
