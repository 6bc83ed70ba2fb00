"""Does the same work go round in a ring of agents, and nothing new comes of it?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Detection, Exchange
from otel_loopguard.detectors.exchange.severity import Response, Responses, advice
from otel_loopguard.detectors.exchange.topics import Returns, Topics, Window, what_came

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_SMALLEST: Final = 3
_LARGEST: Final = 6


class RingCycle:
    """Counts exchanges that repeat those of a turn ago, for rings of 3 to 6 agents.

    For each size: the exchange goes to the agent that got the one a turn ago, on its topic (or was
    passed on without a word and without a call), all agents of a turn are different, and all of it
    lies within one window. Each counts 1 less the mean novelty of what came back during the turn;
    where one does not fit, the count begins again. A detection above `exchange_low` (3), the first
    exchange that came round among them counted as one more, if on average no more than
    `exchange_news` (0.65) of what came back was new.

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
        self._least = 1 - settings.exchange_news
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
