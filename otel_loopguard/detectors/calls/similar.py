"""Is nearly the same call made again and again, and nothing new comes of it? (C2)"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_KEPT: Final = 12
_TOOLS: Final = 16
_WORDS: Final = re.compile(r"(?:[^\W\d_]{2,40} ){2}[^\W\d_]{2}")


class SimilarRepeat:
    """Counts earlier calls of one tool with nearly the same arguments, where nothing new came.

    Similar: the first 256 characters of the arguments are alike by `similar_ratio` (0.85), as they
    stand, or one has the words of the other and more. Nothing new: `similar_novelty` (25 %) of the
    outcome or less was not seen before. Both calls have to be so; a detection from
    `similar_threshold` (5) of them. Only arguments with text in them (three words in a row), for to
    ask the same of many items is no loop; only calls known to read count, and not those of tools
    that run what the agent wrote: similar commands are how people look around. A change of the
    world starts again. It leads to another way at most.

    Likeness is only looked at where nothing new came, so that healthy work does not pay for it.

    Source: FEATURES C2; `notes/evidence.md`, "Tried and dropped" (without the gate it flags 78).
    """

    name = "similar_repeat"
    family = "repetition"
    __slots__ = ("_epoch", "_recent", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recent: OrderedDict[tuple[int, str], deque[str]] = OrderedDict()
        self._epoch = 0

    def user_turn(self) -> None:
        """What was asked before was asked for something else."""
        self._recent.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.epoch != self._epoch:
            self._recent.clear()
            self._epoch = evidence.epoch
        if not self._looked_at(evidence):
            return None
        place = (evidence.agent, evidence.tool)
        recent = self._recent.pop(place, None) or deque(maxlen=_KEPT)
        alike = 1 + sum(self._alike(evidence.sample, sample) for sample in recent)
        recent.append(evidence.sample)
        self._recent[place] = recent
        if len(self._recent) > _TOOLS:
            self._recent.popitem(last=False)
        threshold = self._settings.of(evidence.tool).similar_threshold
        return self._detection(evidence, alike, threshold, evidence.needs(threshold))

    def _looked_at(self, evidence: Evidence) -> bool:
        return (
            _WORDS.search(evidence.sample) is not None
            and evidence.novelty is not None
            and evidence.novelty <= self._settings.similar_novelty
            and evidence.call is not None
            and evidence.effect is Effect.READ
            and not evidence.runs_code
            and not evidence.waits
            and not evidence.error
        )

    def _alike(self, one: str, other: str) -> bool:
        percent = self._settings.similar_ratio * 100
        return (
            fuzz.ratio(one, other, score_cutoff=percent) > 0
            or fuzz.token_set_ratio(one, other, score_cutoff=percent) > 0
        )

    def _detection(
        self, evidence: Evidence, alike: int, threshold: float, needed: float
    ) -> Detection | None:
        if alike < needed:
            return None
        return Detection(
            detector=self.name,
            reason="similar_call",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.04 * (alike - threshold)),
            keys=frozenset({key_of(f"{self.name}\0{evidence.tool}".encode())}),
            count=alike,
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} was called {alike} times with nearly the same arguments, "
            "and its answers brought next to nothing new",
            max_action=Action.STEER,
        )
