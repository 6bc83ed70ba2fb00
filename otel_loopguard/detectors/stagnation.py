"""Do different questions to one tool get the same answer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action, Detection, Effect, Severity
from otel_loopguard.detectors.tally import Tally

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings


class Stagnation:
    """Counts equal answers of one tool to arguments that move, for calls known to change nothing.

    A short answer says little ("rainy", `[]`, `False` coincide): from 40 characters it weighs 1.0,
    from 16 on 0.7, below 0.45. A detection from `repeat_threshold` (3). It leads to a hint at most:
    six questions that the tool has no answer to may be honest research, and only the agent can
    tell. For a call that changes something an equal answer ("ok") is normal.

    Source: `notes/evidence.md`, lesson 5; misses N5 and N6 of `notes/detectors.md`.
    """

    name = "stagnation"
    __slots__ = ("_tally", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.repeat_threshold
        self._tally = Tally()

    def user_turn(self) -> None:
        self._tally.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.error or evidence.waiting or evidence.effect is not Effect.READ:
            return None
        if evidence.outcome is None or evidence.call is None:
            return None
        key = (evidence.tool, evidence.outcome)
        tallied = self._tally.add(key, evidence, weight_of(evidence.outcome_size))
        if tallied is None or len(tallied.calls) < 2 or tallied.count < self._threshold - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="same_answer",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.6 + 0.05 * (tallied.count - self._threshold)),
            keys=frozenset({evidence.outcome}),
            count=round(tallied.count, 2),
            threshold=self._threshold,
            message=f"{evidence.tool!r} gave an equal answer {round(tallied.count)} times, to "
            f"{_several(len(tallied.calls))} different calls",
            max_action=Action.HINT,
        )


def weight_of(size: int) -> float:
    """What an equal answer weighs, by its characters."""
    return 1.0 if size >= 40 else 0.7 if size >= 16 else 0.45


def _several(calls: int) -> str:
    return str(calls) if calls < 8 else "8 or more"
