"""Is the same work handed over again, in other words, although little new came of it?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Exchange
from otel_loopguard.detectors.exchange.severity import Responses, advice
from otel_loopguard.detectors.exchange.topics import Topics, Window, news_between, what_came

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_EARLIER: Final = 24
_ENOUGH: Final = 2


class HandoffRepeat:
    """Counts earlier hand-offs to the same agent that say the same, by what came of them.

    Each earlier one of the newest 24, and of the last `exchange_window_s` (600) where times are
    known, counts 1 less the mean novelty of what came back since: work that brings news is no loop,
    however it is worded. A detection from `exchange_repeat_notice` (0.9), if on average no more
    than `exchange_news` (0.65) of what came back was new. It hints at most; from
    `exchange_repeat_stop` (2.0) and three alike, and not at the first sign, it may lead to a pause,
    or to a deny where nobody could end one. Without the text of the instruction nothing counts;
    what an agent hands on that was handed to it just before is left to the detectors of cycles.

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
        self._notice = settings.exchange_repeat_notice / settings.sensitivity
        self._stop = settings.exchange_repeat_stop / settings.sensitivity
        self._most_news = settings.exchange_news
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
