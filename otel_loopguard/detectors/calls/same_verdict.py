"""Is what is tried turned down with the same words, however it is changed?"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.calls.tally import Tally

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_SHORT: Final = 12
_AGAIN: Final = 0.5
_TRACKED: Final = 32
_CLIMB: Final = ((0, Action.STEER), (2, Action.ASK), (4, Action.ABORT))
"""How far it goes, by tries beyond `verdict_climb`."""


class SameVerdict:
    """Counts equal answers of one tool that turn down what was tried.

    A test that fails in the same way after every edit is work for a while: so changes in between do
    not matter, and neither do the arguments, but it takes `verdict_threshold` (6) tries. A try is
    another call, or the same one after a change; the same one again is half a try. An answer turns
    down if it says so in words (did not pass, failed, wrong, …) and has 12 characters or more;
    failures of the call itself are `error_repeat`'s.

    It leads to a hint. Only from `verdict_climb` (20) tries on between which nothing was changed it
    asks for another way, two tries later for a person, and four tries later it stops: who types in
    one password after another does not stop by being told so. Errors that turn down what was tried
    count there as well.

    Source: `notes/detectors.md`, recommendation 5 ("if epochs advance but the verifier's
    fingerprint stays equal about 6 times: hint, never abort"); `notes/evidence.md`, "Same verifier
    answer across epochs"; a recorded run of 278 passwords, one call each.
    """

    name = "same_verdict"
    family = "standstill"
    __slots__ = ("_guesses", "_settings", "_tally")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = Tally(across_changes=True)
        self._guesses: OrderedDict[tuple[int, str, int, bool], tuple[int, float]] = OrderedDict()

    def user_turn(self) -> None:
        self._tally.halve()
        self._guesses.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits:
            return None
        if not evidence.rejects or evidence.outcome_size < _SHORT:
            return None
        key = (evidence.agent, evidence.tool, evidence.outcome, evidence.error)
        last = self._tally.last(key)
        another_try = last is None or evidence.fresh or evidence.epoch != last.epoch
        weight = 1.0 if another_try else _AGAIN
        tallied = self._tally.add(key, evidence, weight)
        guesses = self._guessed(key, evidence, weight)
        if tallied is None:
            return None
        climbs = self._climbs(evidence, guesses)
        needed = evidence.needs(self._settings.verdict_threshold) - 0.1
        if tallied.count < needed or (evidence.error and climbs is Action.HINT):
            return None
        return self._detection(evidence, tallied.count, climbs)

    def _guessed(self, key: tuple[int, str, int, bool], evidence: Evidence, weight: float) -> float:
        """Tries with this answer since the world was changed last."""
        epoch, count = self._guesses.pop(key, (evidence.epoch, 0.0))
        count = count + weight if epoch == evidence.epoch else weight
        self._guesses[key] = (evidence.epoch, count)
        if len(self._guesses) > _TRACKED:
            self._guesses.popitem(last=False)
        return count

    def _climbs(self, evidence: Evidence, guesses: float) -> Action:
        """The strongest action that it leads to."""
        climb = evidence.needs(self._settings.verdict_climb) - 0.1
        reached = [action for beyond, action in _CLIMB if guesses >= climb + beyond]
        return reached[-1] if reached and evidence.call is not None else Action.HINT

    def _detection(self, evidence: Evidence, count: float, strongest: Action) -> Detection:
        threshold = self._settings.verdict_threshold
        return Detection(
            detector=self.name,
            reason="same_verdict",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (count - threshold)),
            keys=frozenset({evidence.outcome or 0}),
            count=round(count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} turned down what was tried {round(count)} times "
            "with an equal answer",
            max_action=strongest,
        )
