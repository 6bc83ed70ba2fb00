"""Does a model apologise, text after text?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Saying, Severity
from otel_loopguard.detectors.text.rows import Rows

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOP: Final = 0x61706F6C


class Apologising:
    """Counts texts in a row of one speaker that apologise.

    A detection from `text_apology_turns` (3) on; whatever was tried in between, it went wrong each
    time. Data does not count. It hints at most.

    Source: FEATURES D7; false alarm F12 (phrases stand on word boundaries, and one alone says
    nothing).
    """

    name = "apologising"
    family = "text"
    takes = Saying
    __slots__ = ("_rows", "_turns")

    def __init__(self, settings: Settings) -> None:
        self._turns = settings.text_apology_turns
        self._rows = Rows(_apologises)

    def user_turn(self) -> None:
        """A user spoke: to answer a complaint politely is no loop."""
        self._rows.clear()

    def observe(self, saying: Saying) -> Detection | None:
        """Takes one text; gives a detection if it is one too many."""
        count = self._rows.count(saying)
        if count < self._turns:
            return None
        return Detection(
            detector=self.name,
            reason="apologies_in_a_row",
            severity=Severity.WARNING,
            confidence=min(0.75, 0.5 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=self._turns,
            message=f"{count} texts of {saying.name} in a row apologise",
            max_action=Action.HINT,
            advice="Find out what went wrong before the next try; do it in another way.",
        )


def _apologises(saying: Saying) -> bool:
    return saying.apologies > 0 and not saying.structured
