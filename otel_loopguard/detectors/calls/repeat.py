"""Is the same call made again, with the same answer, while nothing changed? (C1, D1)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, ErrorClass, Severity
from otel_loopguard.detectors.wording import answer_of

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_MASKED: Final = 0.8
_FADE: Final = 0.985
_UNSEEN: Final = 10
_ACTS: Final = 20
_ACKNOWLEDGED: Final = 80
_UNSURE: Final = 1.5
_NO_CLOCK: Final = 0.5
_SPACED_S: Final = 60.0
_ASK_AGAIN_S: Final = 60.0


@dataclass(slots=True)
class _Seen:
    """One call as it was last made: its answer, and how many equivalents of it were counted."""

    outcome: int | None
    outcome_exact: int | None
    call_exact: int | None
    count: float
    epoch: int
    round: int
    number: int
    since: int
    last: int
    first: int
    fresh: int
    again: int
    unsure: bool
    acted: int


class ExactRepeat:
    """Counts equal calls with an equal outcome in one state of the world.

    Counted in equivalents of one repeat: byte-equal 1.0, equal after masking 0.8, fading by 1.5 %
    per call in between; from `repeat_threshold` (3) on it is a detection. Never "in a row": other
    calls may sit between. It starts again when the answer differs, when a changing call opened a
    new epoch, and when the last time is more than `repeat_window` calls ago. Calls of one parallel
    round count once. Waiting, judged by the clock, does not count until the wait budget ends;
    transient errors do not count within theirs. A look after a rest of minutes begins anew.

    A poll (a pending answer, or a declared tool) that comes sooner than half of `wait_gap_s` after
    the one before counts the more the sooner it comes, and leads to a hint, which says how long to
    wait, until the wait budget ends. After that looks a minute and more apart lead to a hint at
    most.

    Where half or more of the calls in between were new, the key of the call is a guess, or no clock
    tells whether it waits, it leads to a hint at most; in the last case it takes half as many
    again.

    Where the outcome was not captured, or only acknowledges the call, ten equal calls give a hint
    and never more: polling cannot be told from looping, and "ok" says nothing. Presses, clicks,
    moves and what is declared to write are not stopped for being equal; with an answer of fewer
    than 80 characters it takes twenty of them for a hint, and as many of a look between them whose
    outcome says nothing.

    Source: `notes/evidence.md`, lessons 1, 2 and 9; FEATURES C1, D1, W1, W3.
    """

    name = "exact_repeat"
    family = "repetition"
    __slots__ = ("_acted", "_fresh", "_seen", "_settings", "_window")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._window = settings.repeat_window
        # A call seen once is kept as its evidence: most calls never come again.
        self._seen: dict[int, _Seen | Evidence] = {}
        self._fresh = 0
        self._acted = 0

    def user_turn(self) -> None:
        # To forget what was seen once comes to the same as to halve it.
        again = [(call, seen) for call, seen in self._seen.items() if isinstance(seen, _Seen)]
        self._seen = dict(again)
        for _, seen in again:
            seen.count /= 2

    def observe(self, evidence: Evidence) -> Detection | None:
        call = evidence.call
        if call is None:
            return None
        self._fresh += evidence.fresh and not evidence.error
        self._acted += evidence.acts and not evidence.error
        seen = self._seen.pop(call, None)
        if seen is None or evidence.spaced or not self._continues(seen, evidence):
            self._seen[call] = evidence
            if len(self._seen) > self._window:
                del self._seen[next(iter(self._seen))]
            return None
        if not isinstance(seen, _Seen):
            seen = _first(seen, self._fresh, self._acted)
        counts = self._counts(seen, evidence)
        if seen.round != evidence.round and counts:
            self._count(seen, evidence)
        apart = (evidence.time - seen.last) / 1e9 if seen.last and evidence.time else None
        seen.again += 1
        seen.round, seen.number, seen.last = evidence.round, evidence.number, evidence.time
        seen.unsure = seen.unsure or evidence.pending
        self._seen[call] = seen
        return self._judge(seen, evidence, apart) if counts else None

    def _continues(self, seen: _Seen | Evidence, evidence: Evidence) -> bool:
        return (
            seen.outcome == evidence.outcome
            and seen.epoch == evidence.epoch
            and evidence.number - seen.number <= self._window
        )

    def _counts(self, seen: _Seen, evidence: Evidence) -> bool:
        transient = evidence.error_class is ErrorClass.TRANSIENT and seen.since
        if not evidence.waiting and not transient:
            return True
        own = self._settings.of(evidence.tool)
        budget = own.wait_budget_s if evidence.waiting else own.transient_budget_s
        return _elapsed(seen, evidence) > budget

    def _may_wait(self, seen: _Seen, evidence: Evidence) -> bool:
        """Whether it polls, and its wait budget goes on."""
        budget = self._settings.of(evidence.tool).wait_budget_s
        return evidence.polls and _elapsed(seen, evidence) <= budget

    def _count(self, seen: _Seen, evidence: Evidence) -> None:
        equal = (
            seen.outcome_exact == evidence.outcome_exact and seen.call_exact == evidence.call_exact
        )
        fade = _FADE ** (evidence.number - seen.number - 1)
        weight = 1.0 if equal else _MASKED
        if self._may_wait(seen, evidence):
            weight = self._hurry(seen, evidence)
        seen.count = seen.count * fade + weight

    def _hurry(self, seen: _Seen, evidence: Evidence) -> float:
        """What a poll weighs: 1 at once, nothing after half of `wait_gap_s`."""
        if not seen.last or not evidence.time:
            return _NO_CLOCK
        apart = max(evidence.time - seen.last, 0) / 1e9
        return max(1.0 - 2 * apart / self._settings.wait_gap_s, 0.0)

    def _judge(self, seen: _Seen, evidence: Evidence, apart: float | None) -> Detection | None:
        own = self._settings.of(evidence.tool)
        if self._may_wait(seen, evidence):
            found = seen.count >= evidence.needs(own.repeat_threshold) - 0.1
            return self._too_soon(seen, evidence, own.repeat_threshold) if found else None
        known = evidence.outcome is not None
        silent = evidence.bare or (evidence.acts and evidence.outcome_size < _ACKNOWLEDGED)
        threshold = own.repeat_threshold
        if silent or not known:
            # A look after each press or click is as much work as the press.
            amid = self._acted - seen.acted >= max(seen.again - 1, 1)
            threshold = _ACTS if (known and evidence.acts) or amid else _UNSEEN
        needed = evidence.needs(threshold) * (_UNSURE if seen.unsure else 1.0)
        if seen.count < needed - 0.1:
            return None
        if not known or silent:
            return self._unseen(seen, evidence, threshold)
        mild = (
            evidence.guessed
            or evidence.acts
            or seen.unsure
            or (evidence.waiting and apart is not None and apart >= _SPACED_S)
            or self._amid_news(seen, evidence)
        )
        return Detection(
            detector=self.name,
            reason="identical_call",
            severity=Severity.CRITICAL if seen.count >= threshold + 2 else Severity.WARNING,
            confidence=min(0.99, 0.8 + 0.04 * (seen.count - threshold)),
            keys=frozenset({evidence.call or 0}),
            count=round(seen.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} was called {_times(seen.count)} with equal arguments and "
            f"an equal {answer_of(evidence)}, and nothing was changed in between",
            max_action=Action.HINT if mild else Action.ABORT,
        )

    def _too_soon(self, seen: _Seen, evidence: Evidence, threshold: float) -> Detection:
        wait = max(2 * self._settings.wait_gap_s, _elapsed(seen, evidence) / 3)
        return Detection(
            detector=self.name,
            reason="polled_too_soon",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=frozenset({evidence.call or 0}),
            count=round(seen.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} was asked again and again with hardly a pause, and its "
            f"{answer_of(evidence)} is still pending",
            advice=f"Wait {round(min(wait, _ASK_AGAIN_S))} seconds before you ask again, and wait "
            "as long each time; it is not ready yet, and asking sooner does not change that.",
            max_action=Action.HINT,
        )

    def _unseen(self, seen: _Seen, evidence: Evidence, threshold: float) -> Detection:
        known = evidence.outcome is not None
        says = "its answers say no more than that" if known else "its outcomes are not captured"
        return Detection(
            detector=self.name,
            reason="identical_call_acknowledged" if known else "identical_call_unseen_outcome",
            severity=Severity.WARNING,
            confidence=0.3,
            keys=frozenset({evidence.call or 0}),
            count=round(seen.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} was called {_times(seen.count)} with equal arguments; "
            f"{says}",
            max_action=Action.HINT,
        )

    def _amid_news(self, seen: _Seen, evidence: Evidence) -> bool:
        """Whether most of the calls in between were new: the work goes on beside it."""
        between = evidence.number - seen.first - seen.again
        fresh = self._fresh - seen.fresh
        return between > 0 and 2 * fresh >= between and 2 * fresh >= seen.again


def _first(evidence: Evidence, fresh: int, acted: int) -> _Seen:
    return _Seen(
        evidence.outcome, evidence.outcome_exact, evidence.call_exact, 1.0,
        evidence.epoch, evidence.round, evidence.number, evidence.time, evidence.time,
        evidence.number, fresh, 0,
        evidence.pending, acted,
    )  # fmt: skip


def _elapsed(seen: _Seen, evidence: Evidence) -> float:
    """Seconds since the first call of the row; 0 without times."""
    return (evidence.time - seen.since) / 1e9 if seen.since else 0.0


def _times(count: float) -> str:
    return f"{round(count)} times"
