"""Does a model write the same, word by word, across its texts or inside of one?"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Detection, Gain, Saying, Severity, Tail
from otel_loopguard.detectors.text.speakers import Speakers

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOP: Final = 0x72657065
_BETWEEN: Final = 2


class _Said(NamedTuple):
    key: int
    turn: int
    gain: Gain


class TextRepetition:
    """Counts equal texts of one speaker, and looks at the end of each text.

    Across texts: equal ones, not necessarily in a row, among the newest `text_repeat_times` (4)
    times 2 of a turn; a detection from 4 on. Only texts of `text_repeat_chars` (80 characters) or
    more that are prose, and only where nothing came of what was done since.

    Inside of one: the end of a text that repeats itself `text_tail_times` (10) times, with a period
    of up to `text_tail_period` (500) characters and over at least `text_tail_chars` (400). Not in
    blocks of code, tables, JSON or markup. Or a sentence, or up to 24 of them, anywhere in it, that
    is said `text_chant_times` (6) times in a row, over as many characters. It asks for another way
    at most.

    Source: `notes/detectors.md`, gemini-cli's text rules and false alarm F11.
    """

    name = "text_repetition"
    family = "text"
    takes = Saying
    __slots__ = ("_earlier", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._earlier: Speakers[deque[_Said]] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: the same answer to the same question is none of the model's doing."""
        self._earlier.clear()

    def observe(self, saying: Saying) -> Detection | None:
        """Takes one text; gives a detection if it shows (or still shows) a repetition."""
        count = self._count(saying)
        if saying.tail is not None:
            return self._stuck(saying, saying.tail)
        if saying.chant is not None:
            return self._chanting(saying, saying.chant)
        return self._again(saying, count) if count >= self._settings.text_repeat_times else None

    def _count(self, saying: Saying) -> int:
        settings = self._settings
        if saying.structured or saying.size < settings.text_repeat_chars or saying.beside:
            return 0
        earlier = self._earlier.take(saying.speaker)
        if earlier is None or earlier[-1].turn != saying.turn:
            earlier = deque[_Said](maxlen=_BETWEEN * settings.text_repeat_times)
        count = 1 + sum(
            before.key == saying.key and saying.gain.nothing_since(before.gain, settings.text_news)
            for before in earlier
        )
        earlier.append(_Said(saying.key, saying.turn, saying.gain))
        self._earlier.put(saying.speaker, earlier)
        return count

    def _again(self, saying: Saying, count: int) -> Detection:
        return Detection(
            detector=self.name,
            reason="same_text",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.6 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=self._settings.text_repeat_times,
            message=f"{saying.name} wrote the same text of {saying.size} characters {count} times, "
            "and nothing came of what was done in between",
            max_action=Action.STEER,
            advice="This was said already: do something else, or say what is missing.",
        )

    def _stuck(self, saying: Saying, tail: Tail) -> Detection:
        return Detection(
            detector=self.name,
            reason="repeating_end",
            severity=Severity.WARNING,
            confidence=0.8,
            keys=frozenset({tail.key}),
            count=tail.times,
            threshold=self._settings.text_tail_times,
            message=f"a text of {saying.name} ends with the same {tail.period} characters, "
            f"{tail.times} times or more one after the other",
            max_action=Action.STEER,
            advice="The text does not end by itself: begin it anew, and shorter.",
        )

    def _chanting(self, saying: Saying, chant: Tail) -> Detection:
        return Detection(
            detector=self.name,
            reason="chanting",
            severity=Severity.WARNING,
            confidence=0.75,
            keys=frozenset({chant.key}),
            count=chant.times,
            threshold=self._settings.text_chant_times,
            message=f"a text of {saying.name} says the same {chant.period} characters "
            f"{chant.times} times or more in a row",
            max_action=Action.STEER,
            advice="Said once is enough: go on from there, or begin the text anew.",
        )
