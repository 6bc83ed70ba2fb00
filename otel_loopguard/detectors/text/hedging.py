"""Is a model in doubt, text after text?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Saying, Severity
from otel_loopguard.detectors.text.rows import Rows

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOP: Final = 0x68656467
_WORDS: Final = 100


class Hedging:
    """Counts texts in a row of one speaker that are full of doubt.

    Full means a phrase of doubt ("I'm not sure", "perhaps", "it seems") for every 100 words begun.
    A detection from `text_hedge_turns` (5) on; data does not count. It hints at most.

    Source: FEATURES D7; false alarm F12 (phrases stand on word boundaries, and one alone says
    nothing).
    """

    name = "hedging"
    family = "text"
    takes = Saying
    __slots__ = ("_rows", "_turns")

    def __init__(self, settings: Settings) -> None:
        self._turns = settings.text_hedge_turns
        self._rows = Rows(_in_doubt)

    def user_turn(self) -> None:
        """A user spoke: doubts may be cleared."""
        self._rows.clear()

    def observe(self, saying: Saying) -> Detection | None:
        """Takes one text; gives a detection if it is one too many."""
        count = self._rows.count(saying)
        if count < self._turns:
            return None
        return Detection(
            detector=self.name,
            reason="doubt_in_a_row",
            severity=Severity.WARNING,
            confidence=min(0.7, 0.4 + 0.04 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=self._turns,
            message=f"{count} texts of {saying.name} in a row speak of doubt",
            max_action=Action.HINT,
            advice="Say what is not known, and find out that one thing first.",
        )


def _in_doubt(saying: Saying) -> bool:
    return saying.hedges > saying.words // _WORDS and not saying.structured
