"""Does nearly everything fail, whatever is tried? (C4)"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, ErrorClass, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_KEYS: Final = frozenset({key_of(b"error_rate")})


class ErrorRate:
    """Looks at the newest rounds of calls: how many of them failed, each in its own way.

    A round fails if all of its parallel calls do; an answer that reports a failure (an exit code, a
    status, a traceback) counts as one. A detection if `error_rate` (75 %) of the newest
    `error_rate_rounds` (10) rounds failed, or the newest `error_streak` (6) all did. A retry with
    patience (a transient error, `wait_gap_s` after the same call) does not count. It leads to
    another way at most: what helps against many different errors is not known.

    Source: FEATURES C4; `notes/evidence.md`, row "error rate".
    """

    name = "error_rate"
    family = "errors"
    __slots__ = ("_failed", "_patience", "_rate", "_round", "_row", "_streak")

    def __init__(self, settings: Settings) -> None:
        self._rate = settings.error_rate
        self._streak = settings.error_streak
        self._patience = settings.wait_gap_s * 1e9
        self._failed: deque[bool] = deque(maxlen=settings.error_rate_rounds)
        self._round = -1
        self._row = 0

    def user_turn(self) -> None:
        """What failed before was asked for something else."""
        self._failed.clear()
        self._row = 0

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waiting or self._patient(evidence):
            return None
        if evidence.round == self._round and self._failed:
            self._failed[-1] = self._failed[-1] and evidence.failing
        else:
            self._failed.append(evidence.failing)
            self._row += 1
        self._round = evidence.round
        if not self._failed[-1]:
            self._row = 0
            return None
        return self._judge(evidence)

    def _patient(self, evidence: Evidence) -> bool:
        return (
            evidence.error_class is ErrorClass.TRANSIENT
            and evidence.gap is not None
            and evidence.gap >= self._patience
        )

    def _judge(self, evidence: Evidence) -> Detection | None:
        if self._row >= evidence.needs(self._streak):
            which = f"the last {self._row}"
            needed = evidence.shown(self._streak)
            return self._detection("error_streak", self._row, needed, which)
        failed, rounds = sum(self._failed), self._failed.maxlen or 0
        if len(self._failed) < rounds or failed < self._rate * rounds * max(evidence.ease, 1.0):
            return None
        threshold = self._rate * rounds
        return self._detection("error_rate", failed, threshold, f"{failed} of the last {rounds}")

    def _detection(self, reason: str, count: int, threshold: float, which: str) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.03 * (count - threshold)),
            keys=_KEYS,
            count=count,
            threshold=threshold,
            message=f"{which} rounds of calls failed",
            max_action=Action.STEER,
        )
