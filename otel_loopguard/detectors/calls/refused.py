"""Is a call that is not understood made again in other words?"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.calls.recent import Recent

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_TRACKED: Final = 32


class RefusedCall:
    """Counts rounds in which a tool or a shell refused a call in the same words.

    Refused: wrong usage, wrong syntax, no such command or tool, arguments that do not fit; with or
    without an error flag. Equal: the line that says so, less numbers and what it quotes. A
    detection from `refused_threshold` (4) rounds of the last `refused_window` (40) calls. What
    succeeds or is changed in between does not matter, for a refused call came to nothing in any
    case.

    Source: prototype on 515 recorded runs that were solved (none hit) and on stuck ones (34 caught,
    23 of them stopped by no other rule).
    """

    name = "refused_call"
    family = "errors"
    __slots__ = ("_refused", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._refused: OrderedDict[tuple[str, int], Recent] = OrderedDict()

    def user_turn(self) -> None:
        """What was refused before was tried for something else."""
        self._refused.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.refused or evidence.error_shape is None:
            return None
        key = (evidence.tool, evidence.error_shape)
        recent = self._refused.pop(key, None) or Recent(self._settings.refused_window, 64)
        self._refused[key] = recent
        if len(self._refused) > _TRACKED:
            self._refused.popitem(last=False)
        rounds = recent.add(evidence.number, evidence.round, evidence.call)
        threshold = self._settings.refused_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        return Detection(
            detector=self.name,
            reason="same_refusal",
            severity=Severity.CRITICAL if rounds >= threshold + 2 else Severity.WARNING,
            confidence=min(0.97, 0.8 + 0.03 * (rounds - threshold)),
            keys=recent.calls | {evidence.error_shape},
            count=rounds,
            threshold=threshold,
            message=f"{evidence.tool!r} refused {rounds} calls in the same words: it did not "
            "understand them, and did nothing",
            max_action=Action.HINT if evidence.call is None else Action.ABORT,
            advice="Read how it is to be called before you call it again, or use another tool.",
        )
