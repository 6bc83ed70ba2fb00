"""Does a number that is measured stay as it is, whatever is tried?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.calls.best import Bests

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_KEY: Final = key_of(b"no_better_score")


class NoBetterScore:
    """Counts tries since a number under one name was better than ever.

    The number is what the answer of a tool measures last: a score, accuracy, loss, failures. Which
    way is better nobody knows, so a new highest number is better, and so is a new lowest one. A try
    is another call, or the same one after a change; tries of one round are one.

    From `score_threshold` (6) tries on it is noted on the trace, at every sixth; nothing else
    follows, for a plateau may be the best there is.

    Source: FEATURES W11; no recorded solved run has more than 1 try.
    """

    name = "no_better_score"
    family = "standstill"
    __slots__ = ("_bests", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bests = Bests()

    def user_turn(self) -> None:
        """What was measured before was measured for something else."""
        self._bests.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.score is None:
            return None
        counted = self._bests.add(evidence)
        if counted is None:
            return None
        tries = counted[0].tries
        threshold = self._settings.score_threshold
        if tries == 0 or tries % threshold:
            return None
        return Detection(
            detector=self.name,
            reason="no_better_score",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=frozenset({evidence.score[0] ^ _KEY}),
            count=tries,
            threshold=threshold,
            message=f"a number that {evidence.tool!r} measures was no better in {tries} tries",
            max_action=Action.ALLOW,
            own=Action.ALLOW,
        )
