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
from otel_loopguard.detectors.base import READ, BaseDetector, answer_of, critical_if
from otel_loopguard.detectors.counters import GUESSED, MASKED, VALUES, Periods, surer

if TYPE_CHECKING:
    from otel_loopguard.core import Detection

_FADE: Final = 0.985
"""What a count keeps for each call in between: after 46 calls half."""
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 10.0, 60.0
"""Seconds that a hint may tell to wait."""


@dataclass(slots=True)
class _Repeated:
    """Equal calls with an equal outcome in one epoch; `since` is when the first ended."""

    call_exact: int | None
    outcome: int | None
    outcome_exact: int | None
    epoch: int
    since: int
    round: int
    number: int
    count: float = 1.0
    repeats: int = 0


class ExactRepeat(BaseDetector):
    """Counts equal calls with an equal outcome in one epoch, whatever stands between them.

    What one of them counts and weighs is said in `evidence.weight`: less after a rest and amid
    news, less where the answer is a mere word or was not captured, less where it is equal by a
    guess. Who has waited for longer than `wait_budget_s` is told so.
    """

    name = "exact_repeat"
    family = "repetition"
    sure = (0.99, 0.8, 0.04)
    __slots__ = ("_seen", "_window")

    def reset(self) -> None:
        self._window = self._settings.tuning.calls.repeat_window
        # Most calls never come again: of those a tuple is enough, which no collector looks at.
        self._seen: dict[int, _Repeated | tuple[Any, ...]] = {}

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
        known = self._seen.pop(call, None)
        seen = _Repeated(*known) if isinstance(known, tuple) else known
        if (
            seen is None
            or seen.outcome != evidence.outcome
            or seen.epoch != evidence.epoch
            or evidence.number - seen.number > self._window
        ):
            self._seen[call] = (
                evidence.call_exact, evidence.outcome, evidence.outcome_exact, evidence.epoch,
                evidence.time, evidence.round, evidence.number,
            )  # fmt: skip
            if len(self._seen) > self._window:
                del self._seen[next(iter(self._seen))]
            return None
        self._seen[call] = seen
        seen.repeats += 1
        alike, identity = _identity(seen, evidence)
        if seen.round != evidence.round:
            fade = _FADE ** (evidence.number - seen.number - 1)
            seen.count = seen.count * fade + alike * evidence.hint_weight
        seen.round, seen.number = evidence.round, evidence.number
        own = self._settings.of(evidence.tool)
        budget = own.transient_budget_s if evidence.transient else own.wait_budget_s
        if (evidence.pending or evidence.transient) and _elapsed(seen, evidence) > budget:
            return self._waited(seen, evidence, budget)
        if seen.count < evidence.needs(own.repeat_threshold) - 0.1:
            return None
        return self._repeated(seen, evidence, identity)

    def _repeated(self, seen: _Repeated, evidence: Evidence, identity: float) -> Detection:
        threshold = self._settings.of(evidence.tool).repeat_threshold
        advice, reason = "", "identical_call"
        says = f"and an equal {answer_of(evidence)}, and nothing was changed in between"
        if evidence.outcome is None:
            reason = "identical_call_unseen_outcome"
            says = "and its outcomes are not captured"
        elif evidence.pending:
            reason = "polled_too_soon"
            says = f"with hardly a pause, and its {answer_of(evidence)} says that it is not ready"
            wait = max(_SHORTEST_WAIT_S, _elapsed(seen, evidence) / 3)
            advice = (
                f"Wait {round(min(wait, _LONGEST_WAIT_S))} seconds before you ask again, and as "
                "long each time: to ask sooner does not change it."
            )
        return self.found(
            f"{evidence.tool!r} was called {seen.repeats + 1} times with equal arguments {says}",
            seen.count,
            threshold,
            evidence.call or 0,
            evidence,
            reason=reason,
            severity=critical_if(seen.count >= threshold + 2),
            advice=advice,
            max_action=Action.HINT if evidence.pending else Action.ABORT,
            weight=identity * evidence.stop_weight,
        )

    def _waited(self, seen: _Repeated, evidence: Evidence, budget: float) -> Detection:
        waited = _elapsed(seen, evidence)
        message = (
            f"{evidence.tool!r} was asked {seen.repeats + 1} times in {waited / 60:.0f} minutes, "
            f"and its {answer_of(evidence)} is still the same"
        )
        return self.found(
            message,
            waited,
            budget,
            evidence.call or 0,
            confidence=0.6,
            reason="waited_long",
            max_action=Action.ASK,
            advice=f"You have waited {waited / 60:.0f} minutes: say what is still missing and "
            "finish with what you have, or ask the user how long to wait.",
        )


def _identity(seen: _Repeated, evidence: Evidence) -> tuple[float, float]:
    """How alike a call and its outcome are to those before, for a hint and for a stop."""
    if seen.outcome_exact != evidence.outcome_exact:
        return MASKED, surer(VALUES, seen.repeats)
    if seen.call_exact == evidence.call_exact:
        return 1.0, 1.0
    return MASKED, surer(GUESSED if evidence.guessed else MASKED, seen.repeats)


def _elapsed(seen: _Repeated, evidence: Evidence) -> float:
    """Seconds since the first call of the row; 0 without times."""
    return (evidence.time - seen.since) / 1e9 if seen.since else 0.0


_AGAIN: Final = key_of(b"made_again")
_TWICE: Final = 2
"""Things that are sent or ordered twice are one too many."""
_STARTS: Final = 4
"""Starts of what is under way by then, each time under another name."""


class MadeAgain(BaseDetector):
    """Counts equal calls that succeeded and did or started something once more.

    A message sent, an order placed, a ticket created a second time: an id in the answer, of
    whatever shape, is no news. Of other calls four whose pending answers name another run each
    time. What a user asks for anew, and what one message of the model asks for several times, is
    meant. A hint, and a refusal of the third where `once_tools` declares the tool.
    """

    name = "made_again"
    family = "repetition"
    sure = (0.95, 0.6, 0.05)
    __slots__ = ("_made",)

    def reset(self) -> None:
        self._made: dict[int, tuple[float, int, int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        call = evidence.call_exact
        if call is None or evidence.failing:
            return None
        starts = evidence.variant and evidence.pending
        if not evidence.makes and not starts:
            return None
        count, calls, last = self._made.get(call, (float(not evidence.makes), 0, -1))
        if evidence.round != last:
            # What is started again under another name was not waited for, however long it took.
            count, calls = count + (1.0 if starts else 1.0 - evidence.rested), calls + 1
        keep(self._made, call, (count, calls, evidence.round), 64)
        threshold = _TWICE if evidence.makes else _STARTS
        # Not by how well repeats of the tool pay off: that each brings another answer is the sign.
        if evidence.round == last or count * self._settings.sensitivity < threshold - 0.1:
            return None
        return self.found(
            f"{evidence.tool!r} was called {calls + (not evidence.makes)} times with equal "
            "arguments, and succeeded each time",
            count,
            threshold,
            # A loop of its own: what is done again need not be a call that goes round.
            call ^ _AGAIN,
            evidence,
            reason="done_before" if evidence.makes else "started_again",
            max_action=Action.DENY if evidence.tool in self._settings.once else Action.HINT,
            advice="It was done before: look at what came of it, and do it again only if that is "
            "meant.",
        )


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


_UNKNOWN: Final = (0, 0.0, 0.0)
_TELLING: Final = 0.9
"""What the calls of a cycle count on the average where it is found after its turns; less, later."""


@lru_cache(maxsize=16)
def _cycle_needs(longest: int, repeats: float) -> tuple[int, ...]:
    """How long each period has to run; a cycle of one call is a repeat: another detector's."""
    less = [1.0 if period >= 9 else 0.5 if period >= 4 else 0.0 for period in range(longest + 1)]
    needs = [max(round((repeats - less[at] - 1) * at), at) for at in range(2, longest + 1)]
    return (0, 0, *needs)


class Cycle(BaseDetector):
    """Finds cycles of calls with equal outcomes in one epoch, of any period from 2.

    It takes half a turn less from period 4 and a turn less from period 9: a long cycle is less
    likely by chance. A turn counts and weighs what its calls do on the average; see
    `evidence.weight`. Waits and parallel duplicates are skipped; what was not captured breaks the
    cycle.
    """

    name = "cycle"
    family = "repetition"
    reason = "cycle"
    sure = (0.99, 0.85, 0.04)
    max_action = Action.ABORT
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
        sure = GUESSED if evidence.guessed else 1.0
        label = evidence.call, sure * evidence.hint_weight, sure * evidence.stop_weight
        period = self._periods.add(symbol, label)
        return self._judge(period, evidence) if period else None

    def _judge(self, period: int, evidence: Evidence) -> Detection | None:
        turns = self._periods.run(period) / period + 1
        keys, hints, stops = zip(*self._periods.labels(period), strict=True)
        threshold = self._need[period] / period + 1
        if 1 + (turns - 1) * sum(hints) / period < 1 + (threshold - 1) * _TELLING:
            return None
        message = (
            f"a cycle of {period} calls that ends with {evidence.tool!r} went round "
            f"{int(turns)} times with equal arguments and equal outcomes"
        )
        return self.found(
            message,
            turns,
            round(threshold, 2),
            frozenset(keys),
            severity=critical_if(turns >= threshold + 1),
            period=period,
            weight=sum(stops) / period,
        )
