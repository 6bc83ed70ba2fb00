"""Is the same text written again and again, with hardly anything changed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Detection, Saying, Severity
from otel_loopguard.detectors.text.speakers import Speakers

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOP: Final = 0x7265666E


class _Spiral(NamedTuple):
    before: Saying
    times: int


class RefinementSpiral:
    """Counts how often in a row a text of one speaker is like the one before.

    Alike means that `text_alike` (0.85) of the two samples is common; a detection from
    `text_refine_times` (3) on, that is with the fourth text: draft, review and final version are
    alike in healthy runs. It starts again where something came of what was done in
    between: a change of the world, or answers of tools that were new (`text_news`, 0.1). Texts
    below `text_refine_chars` (80 characters) and data (JSON, tables, blocks of code) do not count:
    verdicts and records of a batch are alike. Texts that differ in numbers only count where no
    tool was called in between: "37 %" and "41 %" is progress. It asks for another way at most.

    Source: FEATURES D6; false alarm F11.
    """

    name = "refinement_spiral"
    family = "text"
    takes = Saying
    __slots__ = ("_settings", "_spirals")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spirals: Speakers[_Spiral] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: what comes now answers that."""
        self._spirals.clear()

    def observe(self, saying: Saying) -> Detection | None:
        """Takes one text; gives a detection if it shows (or still shows) a spiral."""
        before = self._spirals.take(saying.speaker)
        count = 0 if before is None else self._count(before, saying)
        self._spirals.put(saying.speaker, _Spiral(saying, count))
        return self._detection(saying, count) if count >= self._settings.text_refine_times else None

    def _count(self, spiral: _Spiral, now: Saying) -> int:
        settings, before = self._settings, spiral.before
        if now.structured or now.size < settings.text_refine_chars:
            return 0
        if now.alike < settings.text_alike or not now.gain.nothing_since(
            before.gain, settings.text_news
        ):
            return 0
        if now.renumbered and now.calls != before.calls:
            return 0
        return spiral.times + (not now.beside)

    def _detection(self, saying: Saying, count: int) -> Detection:
        return Detection(
            detector=self.name,
            reason="refined_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.55 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=self._settings.text_refine_times,
            message=f"{saying.name} wrote nearly the same text {count + 1} times (the last two "
            f"have {saying.alike:.0%} in common), and nothing came of what was done between",
            max_action=Action.STEER,
            advice="Take the text as it is, or say what exactly is still wrong with it.",
        )
