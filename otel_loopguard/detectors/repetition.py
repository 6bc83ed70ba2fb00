"""The same calls again, in one order or another, without anything new."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Action, Evidence
from otel_loopguard.detectors.base import (
    READ,
    TRANSIENT,
    BaseDetector,
    answer_of,
    critical_if,
    is_patient,
)
from otel_loopguard.detectors.counters import Periods

if TYPE_CHECKING:
    from otel_loopguard.core import Detection

_MASKED: Final = 0.8
_FADE: Final = 0.985
_ACKNOWLEDGED: Final = 80
_WORD: Final = 40
_UNSEEN: Final = 10
_ACTS: Final = 20
_UNSURE: Final = 1.5
_SPACED_S: Final = 60.0


@dataclass(slots=True)
class _Repeated:
    """Equal calls with an equal outcome.

    `began` and `since` are number and time of the first; `moves` how often the call got another
    answer before; `fresh` and `acted` what the session had done when it came again.
    """

    call_exact: int | None
    outcome: int | None
    outcome_exact: int | None
    epoch: int
    unsure: bool
    began: int
    since: int
    round: int
    number: int
    time: int
    moves: int = 0
    fresh: int = 0
    acted: int = 0
    count: float = 1.0
    repeats: int = 0


class ExactRepeat(BaseDetector):
    """Counts equal calls with an equal outcome in one epoch, whatever stands between them.

    Counted in equivalents of one repeat: byte-equal 1.0, equal after masking 0.8, fading by 1.5 %
    per call in between. A wait counts once its budget is used up, and so does a transient error; a
    poll that is still pending counts the more the sooner it comes, for a hint to wait. Where the
    outcome says nothing ("ok", or not captured) no count stops: polling looks the same.
    """

    name = "exact_repeat"
    family = "repetition"
    __slots__ = ("_acted", "_fresh", "_seen", "_window")

    def reset(self) -> None:
        self._window = self._settings.tuning.calls.repeat_window
        # Most calls never come again: of those a tuple is enough, which no collector looks at.
        self._seen: dict[int, _Repeated | tuple[Any, ...]] = {}
        self._fresh = 0
        self._acted = 0

    def user_turn(self) -> None:
        for call, seen in [*self._seen.items()]:
            if isinstance(seen, tuple):
                # The same as to halve it.
                del self._seen[call]
            else:
                seen.count /= 2

    def observe(self, evidence: Evidence) -> Detection | None:
        call = evidence.call
        if call is None:
            return None
        if not evidence.error:
            self._fresh += evidence.fresh or evidence.changed
            self._acted += evidence.acts
        known = self._seen.pop(call, None)
        seen = _Repeated(*known) if isinstance(known, tuple) else known
        if (
            seen is None
            or evidence.spaced
            or seen.outcome != evidence.outcome
            or seen.epoch != evidence.epoch
            or evidence.number - seen.number > self._window
        ):
            self._seen[call] = (
                evidence.call_exact, evidence.outcome, evidence.outcome_exact, evidence.epoch,
                evidence.pending, evidence.number, evidence.time, evidence.round, evidence.number,
                evidence.time, _moves(seen, evidence),
            )  # fmt: skip
            if len(self._seen) > self._window:
                del self._seen[next(iter(self._seen))]
            return None
        self._seen[call] = seen
        if not seen.repeats:
            seen.fresh, seen.acted = self._fresh, self._acted
        counts = self._counts(seen, evidence)
        if counts and seen.round != evidence.round:
            fade = _FADE ** (evidence.number - seen.number - 1)
            seen.count = seen.count * fade + self._weight(seen, evidence)
        apart = (evidence.time - seen.time) / 1e9 if seen.time and evidence.time else None
        seen.repeats += 1
        seen.round, seen.number, seen.time = evidence.round, evidence.number, evidence.time
        seen.unsure = seen.unsure or evidence.pending
        return self._judge(seen, evidence, apart) if counts else None

    def _counts(self, seen: _Repeated, evidence: Evidence) -> bool:
        transient = evidence.error_class is TRANSIENT and seen.since
        if not evidence.waiting and not transient:
            return True
        own = self._settings.of(evidence.tool)
        budget = own.wait_budget_s if evidence.waiting else own.transient_budget_s
        return _elapsed(seen, evidence) > budget

    def _may_wait(self, seen: _Repeated, evidence: Evidence) -> bool:
        """Whether it polls, and its wait budget is not used up."""
        return evidence.polls and self._has_time(seen, evidence)

    def _has_time(self, seen: _Repeated, evidence: Evidence) -> bool:
        return _elapsed(seen, evidence) <= self._settings.of(evidence.tool).wait_budget_s

    def _weight(self, seen: _Repeated, evidence: Evidence) -> float:
        if self._may_wait(seen, evidence):
            if not seen.time or not evidence.time:
                return 0.5
            apart = max(evidence.time - seen.time, 0) / 1e9
            return max(1.0 - 2 * apart / self._settings.tuning.calls.wait_gap_s, 0.0)
        equal = (
            seen.outcome_exact == evidence.outcome_exact and seen.call_exact == evidence.call_exact
        )
        return 1.0 if equal else _MASKED

    def _judge(self, seen: _Repeated, evidence: Evidence, apart: float | None) -> Detection | None:
        threshold = self._settings.of(evidence.tool).repeat_threshold
        if self._may_wait(seen, evidence):
            found = seen.count >= evidence.needs(threshold) - 0.1
            return self._too_soon(seen, evidence, threshold) if found else None
        known = evidence.outcome is not None
        silent = evidence.bare or (evidence.acts and evidence.outcome_size < _ACKNOWLEDGED)
        if silent or not known:
            # A look after each press or click is as much work as the press.
            amid = self._acted - seen.acted >= max(seen.repeats - 1, 1)
            threshold = _ACTS if (known and evidence.acts) or amid else _UNSEEN
        # A word that was another one before, as what dice say, comes again by chance.
        chance = seen.moves >= 2 and evidence.outcome_size < _WORD
        needed = evidence.needs(threshold) * (_UNSURE if seen.unsure or chance else 1.0)
        if seen.count < needed - 0.1:
            return None
        called = f"{evidence.tool!r} was called {seen.repeats + 1} times with equal arguments"
        if silent or not known:
            message = f"{called}; its outcomes are not captured"
            if known:
                message = (
                    f"{called} and an equal {answer_of(evidence)}, which does not say whether "
                    "anything came of it"
                )
            reason = "identical_call_acknowledged" if known else "identical_call_unseen_outcome"
            if known and self._amid_news(seen, evidence):
                return None
            return self.found(
                message,
                seen.count,
                threshold,
                evidence.call or 0,
                evidence,
                confidence=0.3,
                reason=reason,
            )
        mild = (
            evidence.guessed
            or evidence.cut
            or evidence.acts
            or seen.unsure
            or evidence.passes
            or (evidence.waiting and apart is not None and apart >= _SPACED_S)
            or (is_patient(evidence, self._settings) and self._has_time(seen, evidence))
            or (evidence.addressed and seen.outcome_exact != evidence.outcome_exact)
            or self._amid_news(seen, evidence)
        )
        message = f"{called} and an equal {answer_of(evidence)}, and nothing was changed in between"
        confidence = min(0.99, 0.8 + 0.04 * (seen.count - threshold))
        severity = critical_if(seen.count >= threshold + 2)
        most = Action.HINT if mild else Action.ABORT
        return self.found(
            message,
            seen.count,
            threshold,
            evidence.call or 0,
            evidence,
            confidence=confidence,
            reason="identical_call",
            severity=severity,
            max_action=most,
            advice=_waited(_elapsed(seen, evidence)) if evidence.waiting else "",
        )

    def _too_soon(self, seen: _Repeated, evidence: Evidence, threshold: float) -> Detection:
        gap = self._settings.tuning.calls.wait_gap_s
        wait = min(max(2 * gap, _elapsed(seen, evidence) / 3), _SPACED_S)
        message = (
            f"{evidence.tool!r} was asked again and again with hardly a pause, and its "
            f"{answer_of(evidence)} is still pending"
        )
        advice = (
            f"Wait {round(wait)} seconds before you ask again, and wait as long each time; "
            "it is not ready yet, and asking sooner does not change that."
        )
        return self.found(
            message,
            seen.count,
            threshold,
            evidence.call or 0,
            evidence,
            confidence=0.6,
            reason="polled_too_soon",
            advice=advice,
        )

    def _amid_news(self, seen: _Repeated, evidence: Evidence) -> bool:
        """Whether most of the calls in between were new: the work goes on beside it."""
        between = evidence.number - seen.began - seen.repeats
        fresh = self._fresh - seen.fresh
        return between > 0 and 2 * fresh >= between and 2 * fresh >= seen.repeats


def _moves(before: _Repeated | None, evidence: Evidence) -> int:
    """How often a call got another answer than the one before."""
    if before is None:
        return 0
    return before.moves + (before.outcome != evidence.outcome)


def _waited(seconds: float) -> str:
    """What helps who has waited for so long."""
    long = f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
    return (
        f"You have waited {long}: say what is still missing and finish with what you have, or ask "
        "the user how long to wait."
    )


def _elapsed(seen: _Repeated, evidence: Evidence) -> float:
    """Seconds since the first call of the row; 0 without times."""
    return (evidence.time - seen.since) / 1e9 if seen.since else 0.0


_WORDS: Final = re.compile(r"(?:[^\W\d_]{2,40} ){2}[^\W\d_]{2}")


class SimilarRepeat(BaseDetector):
    """Counts calls that read with nearly the arguments of earlier ones, where nothing new came.

    Only arguments with three words in a row: to ask the same of many items is no loop. Not those of
    tools that run what the agent wrote: similar commands are how people look around. Without the
    look at what is new it flags 78 of 428 healthy runs; it comes first, so that these cost nothing.
    """

    name = "similar_repeat"
    family = "repetition"
    sure = (0.85, 0.6, 0.04)
    reason = "similar_call"
    max_action = Action.STEER
    __slots__ = ("_epoch", "_recent")

    def reset(self) -> None:
        self._recent: dict[tuple[int, str], list[str]] = {}
        self._epoch = 0

    def observe(self, evidence: Evidence) -> Detection | None:
        tuning = self._settings.tuning.calls
        if evidence.novelty is None or evidence.novelty > tuning.similar_novelty:
            return None
        if (
            evidence.effect is not READ
            or evidence.call is None
            or evidence.runs_code
            or evidence.waits
            or evidence.error
            or (evidence.item and evidence.place is None)
            or _WORDS.search(evidence.sample) is None
        ):
            return None
        if evidence.epoch != self._epoch:
            self._recent.clear()
            self._epoch = evidence.epoch
        place = (evidence.agent, evidence.tool)
        recent = self._recent.get(place, [])
        percent = tuning.similar_ratio * 100
        alike = 1 + sum(
            fuzz.ratio(evidence.sample, sample, score_cutoff=percent) > 0
            or fuzz.token_set_ratio(evidence.sample, sample, score_cutoff=percent) > 0
            for sample in recent
        )
        keep(self._recent, place, [*recent[-11:], evidence.sample], 16)
        threshold = self._settings.of(evidence.tool).similar_threshold
        if alike < evidence.needs(threshold):
            return None
        message = (
            f"{evidence.tool!r} was called {alike} times with nearly the same arguments, "
            "and its answers brought next to nothing new"
        )
        keys = key_of(f"{self.name}\0{evidence.tool}".encode())
        return self.found(message, alike, threshold, keys, evidence)


_UNKNOWN: Final = (0, False, False, False)


@lru_cache(maxsize=16)
def _cycle_needs(longest: int, repeats: float) -> tuple[int, ...]:
    """How long each period has to run; a cycle of one call is a repeat: another detector's."""
    less = [1.0 if period >= 9 else 0.5 if period >= 4 else 0.0 for period in range(longest + 1)]
    needs = [max(round((repeats - less[at] - 1) * at), at) for at in range(2, longest + 1)]
    return (0, 0, *needs)


class Cycle(BaseDetector):
    """Finds cycles of calls with equal outcomes in one epoch, of any period from 2.

    It takes half a turn less from period 4 and a turn less from period 9: a long cycle is less
    likely by chance. Waits and parallel duplicates are skipped; what was not captured breaks the
    cycle. Where no answer tells anything ("ok") it takes ten turns, with presses and clicks in it
    twenty, for a hint at most.
    """

    name = "cycle"
    family = "repetition"
    reason = "cycle"
    __slots__ = ("_last_round", "_need", "_periods")

    def reset(self) -> None:
        repeats = max(self._settings.cycle_repeats / self._settings.sensitivity, 1.5)
        self._need = _cycle_needs(self._settings.tuning.calls.cycle_max_period, repeats)
        self._periods = Periods(self._need)
        self._last_round = -1

    def user_turn(self) -> None:
        self._periods.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits:
            return None
        if evidence.call is None or evidence.outcome is None:
            self._periods.add(None, _UNKNOWN)
            return None
        symbol = hash((evidence.call, evidence.outcome, evidence.epoch))
        if evidence.round == self._last_round and symbol in self._periods:
            return None
        self._last_round = evidence.round
        tells = not evidence.bare and not evidence.acts
        label = evidence.call, tells, evidence.acts, evidence.pending
        period = self._periods.add(symbol, label)
        return self._judge(period, evidence) if period else None

    def _judge(self, period: int, evidence: Evidence) -> Detection | None:
        turns = self._periods.run(period) / period + 1
        keys, telling, acting, pending = zip(*self._periods.labels(period), strict=True)
        tells = any(telling)
        if not tells and turns < (_ACTS if any(acting) else _UNSEEN):
            return None
        threshold = self._need[period] / period + 1
        message = (
            f"a cycle of {period} calls that ends with {evidence.tool!r} went round "
            f"{int(turns)} times with equal arguments and equal outcomes"
        )
        confidence = min(0.99, 0.85 + 0.04 * (turns - threshold))
        severity = critical_if(turns >= threshold + 1)
        # Of presses and moves equal answers may be equal moves of a game.
        moves = 2 * sum(acting) > period
        guessed = evidence.guessed or evidence.cut
        mild = guessed or not tells or moves or any(pending)
        most = Action.HINT if mild else Action.ABORT
        return self.found(
            message,
            turns,
            round(threshold, 2),
            frozenset(keys),
            confidence=confidence,
            severity=severity,
            period=period,
            max_action=most,
        )
