"""Are commands run that do nothing?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.calls.recent import Recent

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_KEY: Final = key_of(b"idle_command")


class IdleCommand:
    """Counts rounds whose command does nothing: `:`, a comment, punctuation, a bare `echo`.

    They are all equal to each other, whatever they say. A detection from `idle_threshold` (4)
    rounds of the last `idle_window` (40) calls; what is done in between does not matter. Where they
    are less than half of the calls since the first of them, it leads to a hint at most: who writes
    notes with `echo` beside real work is not stuck.

    Source: prototype on 34 stuck runs of a coding agent (14 caught) and on solved ones (none).
    """

    name = "idle_command"
    family = "standstill"
    __slots__ = ("_recent", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.user_turn()

    def user_turn(self) -> None:
        """What was done before was done for something else."""
        self._recent = Recent(self._settings.idle_window, 64)

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.idle:
            return None
        rounds = self._recent.add(evidence.number, evidence.round, evidence.call)
        threshold = self._settings.idle_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        mostly = 2 * rounds >= evidence.number - self._recent.first + 1
        return Detection(
            detector=self.name,
            reason="does_nothing",
            severity=Severity.WARNING,
            confidence=min(0.95, 0.75 + 0.03 * (rounds - threshold)),
            keys=self._recent.calls | {_KEY},
            count=rounds,
            threshold=threshold,
            message=f"{rounds} of the last commands of {evidence.tool!r} do nothing, whatever "
            "stands behind them",
            max_action=Action.ABORT if mostly and evidence.call is not None else Action.HINT,
            advice="Write the command itself, without anything in front of it.",
        )
