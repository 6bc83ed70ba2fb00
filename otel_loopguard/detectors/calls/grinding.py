"""Has nothing new come up for a long stretch, although every call is another one?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_KEYS: Final = frozenset({key_of(b"grinding")})


class Grinding:
    """Looks at the newest answers: what part of them was not seen before in the session.

    A detection if `grinding_novelty` (10 %) or less of the newest `grinding_calls` (20) answers was
    new, nothing was changed in between, and none of them was a wait. Over fewer calls healthy runs
    look the same. It leads to a hint at most.

    Source: `notes/evidence.md`, lesson 7 ("novelty is worthless alone"), miss N7 of
    `notes/detectors.md`.
    """

    name = "grinding"
    family = "standstill"
    __slots__ = ("_epoch", "_line", "_news", "_sum")

    def __init__(self, settings: Settings) -> None:
        self._line = settings.grinding_novelty
        self._news: deque[float] = deque(maxlen=settings.grinding_calls)
        self._sum = 0.0
        self._epoch = 0

    def user_turn(self) -> None:
        """What was asked before was asked for something else."""
        self._start()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.epoch != self._epoch:
            self._epoch = evidence.epoch
            self._start()
        if evidence.novelty is None or evidence.waiting:
            self._start()
            return None
        news = self._news
        if len(news) == news.maxlen:
            self._sum -= news[0]
        news.append(evidence.novelty)
        self._sum += evidence.novelty
        if len(news) != news.maxlen or self._sum * evidence.ease > self._line * len(news):
            return None
        return Detection(
            detector=self.name,
            reason="nothing_new",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=_KEYS,
            count=len(news),
            threshold=len(news),
            message=f"the last {len(news)} calls brought next to nothing that was not seen before",
            max_action=Action.HINT,
        )

    def _start(self) -> None:
        self._news.clear()
        self._sum = 0.0
