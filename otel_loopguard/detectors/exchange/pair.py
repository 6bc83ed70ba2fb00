"""Do two agents hand the same work back and forth, and nothing new comes of it?"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Detection, Exchange
from otel_loopguard.detectors.exchange.severity import Response, Responses, advice
from otel_loopguard.detectors.exchange.topics import Returns, Topics, Window, what_came

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

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
    average no more than `exchange_news` (0.65) of what came back was new. It rests on two names and
    on the words of two exchanges, and goes on where `exchange_ring` and `exchange_topic` fail.

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
        self._least = 1 - settings.exchange_news
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
