"""Do different questions to one tool get the same answer?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Effect, Severity
from otel_loopguard.detectors.calls.row import ITEM
from otel_loopguard.detectors.calls.tally import Tallied, Tally
from otel_loopguard.detectors.wording import answer_of

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_OTHER: Final = 0.7
_ITEM: Final = re.compile(r"\"[^\"\s]{1,64}\"|'[^'\n]{1,64}'|\d+")


class Stagnation:
    """Counts equal answers of one tool to moving arguments, for calls known to change nothing.

    Of each agent by itself: several that read the same are no loop.

    A short answer says little ("rainy", `[]`, `False` coincide): from 40 characters it weighs 1.0,
    from 16 on 0.7, below 0.45. Below that it does not count at all where the call differs from the
    one before in an item only (a number, a name): to check many things is no loop. An answer that
    the tool did not give before takes three tenths of what was counted: it does answer. A detection
    from `repeat_threshold` (3). It leads to a hint at most: six questions that the tool has no
    answer to may be honest research, and only the agent can tell. For a call that changes something
    an equal answer ("ok") is normal.

    Source: `notes/evidence.md`, lesson 5; misses N5 and N6 of `notes/detectors.md`.
    """

    name = "stagnation"
    family = "standstill"
    __slots__ = ("_settings", "_tally")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = Tally()

    def user_turn(self) -> None:
        self._tally.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.error or evidence.waits or evidence.effect is not Effect.READ:
            return None
        if evidence.outcome is None or evidence.call is None or evidence.bare:
            return None
        key = (evidence.agent, evidence.tool, evidence.outcome)
        weight = weight_of(evidence.outcome_size)
        if weight < 1.0 and _one_of_many(self._tally.last(key), evidence.sample):
            weight = 0.0
        elif evidence.item and evidence.nothing and evidence.place is None:
            weight = min(weight, ITEM)
        tallied = self._tally.add(key, evidence, weight)
        if tallied is None:
            self._tally.answered(evidence.tool, key, _OTHER)
        elif len(tallied.calls) >= 2:
            return self._judge(evidence, tallied)
        return None

    def _judge(self, evidence: Evidence, tallied: Tallied) -> Detection | None:
        threshold = self._settings.of(evidence.tool).repeat_threshold
        if tallied.count < evidence.needs(threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="same_answer",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.6 + 0.05 * (tallied.count - threshold)),
            keys=frozenset({evidence.outcome or 0}),
            count=round(tallied.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} gave an equal {answer_of(evidence)} to "
            f"{_several(len(tallied.calls))} different calls",
            max_action=Action.HINT,
        )


def _one_of_many(last: Tallied | Evidence | None, now: str) -> bool:
    """Whether two calls ask the same of two items: they differ in numbers or single words only."""
    if last is None or last.sample == now:
        return False
    return _ITEM.sub("#", last.sample) == _ITEM.sub("#", now)


def weight_of(size: int) -> float:
    """What an equal answer weighs, by its characters."""
    return 1.0 if size >= 40 else 0.7 if size >= 16 else 0.45


def _several(calls: int) -> str:
    return str(calls) if calls < 8 else "8 or more"
