"""Has nothing new come up for a long stretch, although every call is another one?"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, ErrorClass, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_AGENTS: Final = 32
_KEYS: Final = frozenset({key_of(b"grinding")})


@dataclass(slots=True)
class _Newest:
    """The newest rounds of one agent: what was new in each, and their sum."""

    news: deque[float]
    sum: float = 0.0
    epoch: int = 0
    round: int = -1

    def add(self, novelty: float, number: int) -> None:
        """Takes an answer; of one round the one that brought the most counts."""
        news = self.news
        if number == self.round and news:
            self.sum += max(novelty - news[-1], 0.0)
            news[-1] = max(novelty, news[-1])
            return
        self.round = number
        if len(news) == news.maxlen:
            self.sum -= news[0]
        news.append(novelty)
        self.sum += novelty

    def start(self) -> None:
        """Begins anew."""
        self.news.clear()
        self.sum = 0.0


class Grinding:
    """Looks at the newest answers: what part of them was not seen before by the agent.

    A detection if `grinding_novelty` (10 %) or less of the newest `grinding_calls` (20) answers was
    new, nothing was changed in between, and none of them was a wait. Calls of one round count once.
    Over fewer calls healthy runs look the same. It leads to a hint at most.

    Source: `notes/evidence.md`, lesson 7 ("novelty is worthless alone"), miss N7 of
    `notes/detectors.md`.
    """

    name = "grinding"
    family = "standstill"
    __slots__ = ("_agents", "_calls", "_line")

    def __init__(self, settings: Settings) -> None:
        self._line = settings.grinding_novelty
        self._calls = settings.grinding_calls
        self._agents: dict[int, _Newest] = {}

    def user_turn(self) -> None:
        """What was asked before was asked for something else."""
        self._agents.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        newest = self._of(evidence.agent)
        if evidence.epoch != newest.epoch:
            newest.epoch = evidence.epoch
            newest.start()
        if evidence.novelty is None or evidence.waits:
            newest.start()
            return None
        # That a call was carried out, or that one of many items is not there, is all it can say.
        passing = evidence.error_class is ErrorClass.TRANSIENT
        if passing or evidence.bare or evidence.acts or (evidence.item and evidence.nothing):
            return None
        newest.add(evidence.novelty, evidence.round)
        known = len(newest.news)
        if known != self._calls or newest.sum * evidence.ease > self._line * known:
            return None
        return Detection(
            detector=self.name,
            reason="nothing_new",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=_KEYS,
            count=known,
            threshold=known,
            message=f"the last {known} calls brought next to nothing that was not seen before",
            max_action=Action.HINT,
        )

    def _of(self, agent: int) -> _Newest:
        newest = self._agents.get(agent)
        if newest is None:
            newest = self._agents[agent] = _Newest(deque(maxlen=self._calls))
            if len(self._agents) > _AGENTS:
                del self._agents[next(iter(self._agents))]
        return newest
