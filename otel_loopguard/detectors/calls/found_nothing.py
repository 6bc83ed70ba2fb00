"""Is search after search answered by "nothing found"?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, Severity
from otel_loopguard.detectors.calls.row import ITEM, Rows

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_LESS: Final = 0.7
_PAGE: Final = 0.5


class FoundNothing:
    """Counts new questions whose answer says that nothing was found, in whatever words.

    An answer that finds something takes three tenths, a successful change all of what was counted.
    One item after the other that is not there counts 0.22, so that it takes 15 of them, and a page
    half. A detection from `nothing_threshold` (4). It leads to a hint at most: to look where
    nothing is may be what was asked for.

    Source: `notes/evidence.md`, row "found nothing outcomes".
    """

    name = "found_nothing"
    family = "standstill"
    __slots__ = ("_rows", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.nothing_threshold
        self._rows = Rows()

    def user_turn(self) -> None:
        self._rows.leak(0.5)

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits:
            return None
        if evidence.error or not evidence.nothing or not evidence.fresh:
            self._found(evidence)
            return None
        count = self._rows.of(evidence.agent).add(evidence.round, self._weight(evidence))
        if count < evidence.needs(self._threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="found_nothing",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.55 + 0.05 * (count - self._threshold)),
            keys=frozenset({key_of(self.name.encode())}),
            count=round(count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{round(count)} different calls, of {evidence.tool!r} the last, found nothing",
            max_action=Action.HINT,
        )

    def _weight(self, evidence: Evidence) -> float:
        if evidence.place is not None:
            return _PAGE
        return ITEM if evidence.item else 1.0

    def _found(self, evidence: Evidence) -> None:
        if evidence.effect is Effect.WRITE and not evidence.error:
            self._rows.leak(0)
        elif not evidence.nothing:
            self._rows.of(evidence.agent).leak(_LESS)
