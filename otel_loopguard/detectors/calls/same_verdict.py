"""Is what is tried turned down with the same words, however it is changed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.calls.tally import Tally

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_SHORT: Final = 16
_AGAIN: Final = 0.5


class SameVerdict:
    """Counts equal answers of one tool that turn down what was tried.

    A test that fails in the same way after every edit is work for a while: so changes in between do
    not matter, and neither do the arguments, but it takes `verdict_threshold` (6) tries. A try is
    another call, or the same one after a change; the same one again is half a try. An answer turns
    down if it says so in words (did not pass, failed, wrong, …) and has 16 characters or more;
    failures of the call itself are `error_repeat`'s. It leads to a hint at most.

    Source: `notes/detectors.md`, recommendation 5 ("if epochs advance but the verifier's
    fingerprint stays equal about 6 times: hint, never abort"); `notes/evidence.md`, "Same verifier
    answer across epochs".
    """

    name = "same_verdict"
    family = "standstill"
    __slots__ = ("_tally", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.verdict_threshold
        self._tally = Tally(across_changes=True)

    def user_turn(self) -> None:
        self._tally.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.error or evidence.waiting:
            return None
        if not evidence.rejects or evidence.outcome_size < _SHORT:
            return None
        key = (evidence.agent, evidence.tool, evidence.outcome)
        last = self._tally.last(key)
        another_try = last is None or evidence.fresh or evidence.epoch != last.epoch
        tallied = self._tally.add(key, evidence, 1.0 if another_try else _AGAIN)
        if tallied is None or tallied.count < evidence.needs(self._threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="same_verdict",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (tallied.count - self._threshold)),
            keys=frozenset({evidence.outcome}),
            count=round(tallied.count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{evidence.tool!r} turned down what was tried {round(tallied.count)} times "
            "with an equal answer",
            max_action=Action.HINT,
        )
