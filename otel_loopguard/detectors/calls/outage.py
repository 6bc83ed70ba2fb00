"""Do several tools fail, or give no real answer, in the same way?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Severity
from otel_loopguard.detectors.calls.row import ITEM
from otel_loopguard.detectors.calls.tally import Tallied, Tally
from otel_loopguard.detectors.wording import answer_of

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_LONG: Final = 40
_AFTER_SUCCESS: Final = 0.6
_ODD: Final = 0x9E37_79B9_7F4A_7C15
_KEY: Final = 0xFFFF_FFFF_FFFF_FFFF
_BACK_OFF: Final = 1.5
_AT_ONCE: Final = 1.2
"""A fifth of `wait_gap_s` is no pause."""


class Outage:
    """Counts equal errors and equal long answers across tools, and retries without a pause.

    Two tools that say the same, in 40 characters or more, do not speak of what they were asked:
    something behind them is down. The same holds for one tool that is asked again at once after a
    transient error; the longer the pause before, the less it counts, and with `wait_gap_s` (5 s)
    between, or pauses that grow by half, it is a retry with patience, which has its own budget.
    One item after the other that is not there counts 0.22. A success of a tool ends the outage:
    what was counted of its errors is gone, of its answers two fifths. That a change was carried out
    counts for nothing. A detection from `error_threshold` (3). It leads to a pause at most: the
    agent is not stuck by its own doing, and what helps is to wait or to go another way; to a hint
    where arguments are not captured, where one tool was asked for other things each time, and where
    nobody can let a paused session go on (no webhook, store, socket or `on_escalation`).

    Source: `notes/evidence.md`, "the same answer of >= 40 characters three times from >= 2 tools
    is an outage", and its row "same error (one tool; across tools)".
    """

    name = "outage"
    family = "errors"
    __slots__ = ("_ended", "_failures", "_gap", "_patience", "_tally", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.error_threshold
        self._patience = settings.wait_gap_s * 1e9
        self._tally = Tally()
        self._failures = Tally()
        self._ended = 0
        self._gap = 0

    def user_turn(self) -> None:
        self._tally.halve()
        self._failures.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        key = evidence.error_shape if evidence.error else evidence.outcome
        # An equal answer is one of an agent, an equal error one of what is behind the tools.
        place = key if evidence.error else (evidence.agent, key)
        if not evidence.error:
            self._tally.answered(evidence.tool, place, _AFTER_SUCCESS)
            if not evidence.failing and not evidence.waits:
                self._ended += self._failures.forget(evidence.tool)
        if key is None or evidence.waits:
            return None
        if not evidence.error and (evidence.outcome_size < _LONG or _carried_out(evidence)):
            return None
        transient = evidence.error_class is ErrorClass.TRANSIENT
        patient = transient and not evidence.fresh and self._paused(key, evidence)
        weight = 0.0 if patient else self._weight(evidence, transient=transient)
        self._gap = evidence.gap or 0
        tally = self._failures if evidence.error else self._tally
        tallied = tally.add(place, evidence, weight)
        if tallied is None or tallied.count < evidence.needs(self._threshold) - 0.1:
            return None
        if len(tallied.tools) < 2 and not (transient and not patient):
            return None
        return self._detection(key, tallied, evidence)

    def _weight(self, evidence: Evidence, *, transient: bool) -> float:
        if evidence.absent or (evidence.item and evidence.nothing):
            return ITEM
        if not transient:
            return 1.0
        return min(max(_AT_ONCE - (evidence.gap or 0) / self._patience, 0.0), 1.0)

    def _paused(self, key: int, evidence: Evidence) -> bool:
        last = self._failures.last(key)
        if last is None or not last.time:
            return False
        grows = evidence.gap is not None and evidence.gap >= _BACK_OFF * self._gap > 0
        return grows or evidence.time - last.time >= self._patience

    def _detection(self, key: int, tallied: Tallied, evidence: Evidence) -> Detection:
        what = "failed with" if evidence.error else "gave"
        several = len(tallied.tools) > 1
        again = not evidence.fresh
        who = f"{len(tallied.tools)} tools" if several else f"{evidence.tool!r}"
        return Detection(
            detector=self.name,
            reason="same_from_several_tools" if several else "retry_without_pause",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.65 + 0.05 * (tallied.count - self._threshold)),
            # What comes after a success is another outage, with a hint of its own before a pause.
            keys=frozenset({key ^ self._ended * _ODD & _KEY if evidence.error else key}),
            count=round(tallied.count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{who} {what} an equal {answer_of(evidence)} {round(tallied.count)} times",
            max_action=Action.PAUSE
            if evidence.call is not None and (several or again)
            else Action.HINT,
            unanswered=Action.HINT,
        )


def _carried_out(evidence: Evidence) -> bool:
    """Whether it says that something was done, as all such calls of one program may."""
    writes = evidence.acts or evidence.effect is Effect.WRITE
    return writes and not evidence.failing and not evidence.rejects
