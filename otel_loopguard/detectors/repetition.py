"""The same calls again, in one order or another, without anything new."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Severity
from otel_loopguard.detectors.counters import LeakyCounters, Periods, answer_of

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
    new epoch, and when the last time is more than `tuning.calls.repeat_window` calls ago. Calls of
    one parallel round count once. Waiting, judged by the clock, does not count until the wait
    budget ends; transient errors do not count within theirs. A look after a rest of minutes begins
    anew.

    A poll (a pending answer, or a declared tool) that comes sooner than half of
    `tuning.calls.wait_gap_s` after the one before counts the more the sooner it comes, and leads to
    a hint, which says how long to wait, until the wait budget ends. After that looks a minute and
    more apart lead to a hint at most.

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
        self._window = settings.tuning.calls.repeat_window
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
        """What a poll weighs: 1 at once, nothing after half of `tuning.calls.wait_gap_s`."""
        if not seen.last or not evidence.time:
            return _NO_CLOCK
        apart = max(evidence.time - seen.last, 0) / 1e9
        return max(1.0 - 2 * apart / self._settings.tuning.calls.wait_gap_s, 0.0)

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
        wait = max(2 * self._settings.tuning.calls.wait_gap_s, _elapsed(seen, evidence) / 3)
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


_KEPT: Final = 12
_TOOLS: Final = 16
_WORDS: Final = re.compile(r"(?:[^\W\d_]{2,40} ){2}[^\W\d_]{2}")


class SimilarRepeat:
    """Counts earlier calls of one tool with nearly the same arguments, where nothing new came.

    Similar: the first 256 characters of the arguments are alike by `tuning.calls.similar_ratio`
        (0.85), as they
    stand, or one has the words of the other and more. Nothing new: `tuning.calls.similar_novelty`
    (25 %) of the outcome or less was not seen before. Both calls have to be so; a detection from
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
            and evidence.novelty <= self._settings.tuning.calls.similar_novelty
            and evidence.call is not None
            and evidence.effect is Effect.READ
            and not evidence.runs_code
            and not evidence.waits
            and not evidence.error
        )

    def _alike(self, one: str, other: str) -> bool:
        percent = self._settings.tuning.calls.similar_ratio * 100
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


_SHORT: Final = 40
_LESS: Final = 0.8


class Echo:
    """Counts calls that got their own arguments back and nothing else.

    A program that prints the text that it holds looks busy and learns nothing. An answer is an echo
    if half or more of its pieces stand in the call's own arguments and it has 40 characters or
    more. Calls that change something and failures do not count; every call in between that is no
    echo takes a fifth. A detection from `tuning.calls.echo_threshold` (3). It leads to a hint at
    most.

    Source: `notes/evidence.md`, row "echo" and lesson 7.
    """

    name = "echo"
    family = "standstill"
    __slots__ = ("_rows", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.tuning.calls.echo_threshold
        self._rows = LeakyCounters()

    def user_turn(self) -> None:
        self._rows.leak(0.5)

    def observe(self, evidence: Evidence) -> Detection | None:
        if not _echoes(evidence):
            self._rows.of(evidence.agent).leak(_LESS)
            return None
        count = self._rows.of(evidence.agent).add(evidence.round)
        if count < evidence.needs(self._threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="echo",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.55 + 0.05 * (count - self._threshold)),
            keys=frozenset({key_of(f"{self.name}\0{evidence.tool}".encode())}),
            count=round(count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{evidence.tool!r} gave back what it was given {round(count)} times, "
            "and nothing else",
            max_action=Action.HINT,
        )


def _echoes(evidence: Evidence) -> bool:
    return (
        evidence.echo
        and not evidence.error
        and evidence.effect is not Effect.WRITE
        and evidence.outcome_size >= _SHORT
    )


_LONG: Final = 9
_MIDDLE: Final = 4
_LEAST: Final = 1.5
_SILENT: Final = 10


class Cycle:
    """Finds cycles of any period from 2 to `calls.cycle_max_period` (16) in O(period) per call.

    `m[p]` grows while this call equals the one `p` calls ago and falls to 0 otherwise; a cycle is
    found at `m[p] >= (r - 1) * p`. `r` is `cycle_repeats` (3) turns for periods to 3, half a turn
    less from period 4 and a turn less from period 9: a long cycle is less likely by chance. Equal
    means: call, outcome and epoch; so a cycle that changes anything is none. Waits and parallel
    duplicates are passed over; what was not captured breaks the cycle.

    A cycle of nothing but acknowledged calls takes ten turns, one with presses, clicks and moves in
    it twenty, and it leads to a hint at most: none of its answers says that nothing changed.

    Source: DESIGN "Identity of a call", last rule; FEATURES C3, W3.
    """

    name = "cycle"
    family = "repetition"
    __slots__ = ("_acts", "_calls", "_last_round", "_need", "_periods", "_tells")

    def __init__(self, settings: Settings) -> None:
        longest = settings.tuning.calls.cycle_max_period
        # A cycle of one call is a repeat, and has another detector.
        self._need = [0, 0] + [
            _calls_needed(period, max(settings.cycle_repeats / settings.sensitivity, _LEAST))
            for period in range(2, longest + 1)
        ]
        self._periods = Periods(self._need)
        self._calls: deque[int] = deque(maxlen=longest)
        self._tells: deque[bool] = deque(maxlen=longest)
        self._acts: deque[bool] = deque(maxlen=longest)
        self._last_round = -1

    def user_turn(self) -> None:
        self._periods.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits:
            return None
        if evidence.call is None or evidence.outcome is None:
            self._periods.take(None)
            self._calls.append(0)
            self._tells.append(False)
            self._acts.append(False)
            return None
        symbol = hash((evidence.call, evidence.outcome, evidence.epoch))
        if evidence.round == self._last_round and symbol in self._periods:
            return None
        self._last_round = evidence.round
        found = self._periods.take(symbol)
        self._calls.append(evidence.call)
        self._tells.append(not evidence.bare and not evidence.acts)
        self._acts.append(evidence.acts)
        return self._detection(found, evidence) if found else None

    def _detection(self, period: int, evidence: Evidence) -> Detection | None:
        turns = self._periods.run(period) / period + 1
        tells = any(list(self._tells)[-period:])
        if not tells and turns < (_ACTS if any(list(self._acts)[-period:]) else _SILENT):
            return None
        threshold = self._need[period] / period + 1
        return Detection(
            detector=self.name,
            reason="cycle",
            severity=Severity.CRITICAL if turns >= threshold + 1 else Severity.WARNING,
            confidence=min(0.99, 0.85 + 0.04 * (turns - threshold)),
            keys=frozenset(list(self._calls)[-period:]),
            count=round(turns, 2),
            threshold=round(threshold, 2),
            message=f"a cycle of {period} calls that ends with {evidence.tool!r} went round "
            f"{turns:.1f} times with equal arguments and equal outcomes",
            period=period,
            max_action=Action.HINT if evidence.guessed or not tells else Action.ABORT,
        )


def _calls_needed(period: int, repeats: float) -> int:
    less = 1.0 if period >= _LONG else 0.5 if period >= _MIDDLE else 0.0
    return max(round((repeats - less - 1) * period), period)


_TRACKED: Final = 16
_PLACES: Final = 256
_FEW: Final = 5


@dataclass(slots=True)
class _Sweep:
    """The places of one range that were read, in order, and how often one was read again."""

    epoch: int
    places: list[float] = field(default_factory=list[float])
    last: float = 0.0
    stride: float = 0.0
    wrapped: bool = False
    again: float = 0.0
    round: int = -1


class Sweep:
    """Counts calls that ask for a place in a range that was read through already.

    Place: the one number among the arguments that pages through something (`offset`, `page`, …),
    all else being equal. After the first step back, a place between two that were read and lie no
    further apart than one and a half strides is read again, whatever the answer says: the answers
    of a sweep that wraps around, shifted by half a page, are all new. A detection from
    `tuning.calls.sweep_threshold` (8) places; five or more have to be known before. A change of the
    world starts again. It leads to a hint at most.

    Source: `notes/evidence.md`, lesson 10; miss N7 of `notes/detectors.md`.
    """

    name = "sweep"
    family = "standstill"
    __slots__ = ("_sweeps", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.tuning.calls.sweep_threshold
        self._sweeps: OrderedDict[int, _Sweep] = OrderedDict()

    def user_turn(self) -> None:
        """What was read before was read for something else."""
        self._sweeps.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.place is None or evidence.waits or evidence.effect is Effect.WRITE:
            return None
        key, place = evidence.place
        sweep = self._sweeps.pop(key, None)
        if sweep is None or sweep.epoch != evidence.epoch:
            sweep = _Sweep(evidence.epoch)
        self._sweeps[key] = sweep
        if len(self._sweeps) > _TRACKED:
            self._sweeps.popitem(last=False)
        again = _again(sweep, place, evidence.round)
        _step(sweep, place)
        if not again or sweep.again < evidence.needs(self._threshold):
            return None
        return self._detection(evidence, key, sweep)

    def _detection(self, evidence: Evidence, key: int, sweep: _Sweep) -> Detection:
        return Detection(
            detector=self.name,
            reason="read_again",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.02 * (sweep.again - self._threshold)),
            keys=frozenset({key}),
            count=sweep.again,
            threshold=evidence.shown(self._threshold),
            message=f"{evidence.tool!r} read {sweep.again:g} places again that it had read through "
            "before",
            max_action=Action.HINT,
        )


def _again(sweep: _Sweep, place: float, number: int) -> bool:
    """Whether a place lies in what was read through; counts it, once in a round."""
    if place < sweep.last:
        sweep.wrapped = True
    known = len(sweep.places)
    if not sweep.wrapped or known < _FEW:
        return False
    right = bisect_left(sweep.places, place)
    here = right < known and sweep.places[right] == place
    between = 0 < right < known and (
        sweep.places[right] - sweep.places[right - 1] <= 1.5 * sweep.stride
    )
    if here or between:
        sweep.again += number != sweep.round
        sweep.round = number
    return here or between


def _step(sweep: _Sweep, place: float) -> None:
    if sweep.places and place > sweep.last:
        step = place - sweep.last
        sweep.stride = step if not sweep.stride else min(sweep.stride, step)
    right = bisect_left(sweep.places, place)
    if len(sweep.places) < _PLACES and (right == len(sweep.places) or sweep.places[right] != place):
        insort(sweep.places, place)
    sweep.last = place


class RevisedInVain:
    """Counts calls in a row of one tool that revise: arguments and answer are nearly the last ones.

    Nearly means that 90 % of both are common, and that both have 200 characters or more: a draft
    goes in, a draft comes out, and two words differ. All short arguments have to be the same, or
    it is a letter to somebody else. It is `refinement_spiral` for tools. What other tools do in
    between does not matter; calls of one round are one. A detection from
    `tuning.calls.revision_threshold` (6) on; it leads to a hint and no further. A call that fails
    or waits ends a row.

    Source: FEATURES W11; no recorded solved run has more than 1 in a row.
    """

    name = "revised_in_vain"
    family = "standstill"
    __slots__ = ("_rows", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rows: OrderedDict[tuple[int, str], tuple[int, int]] = OrderedDict()

    def user_turn(self) -> None:
        """A user spoke: what is revised now was asked for."""
        self._rows.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool)
        count, last = self._rows.pop(key, (0, -1))
        if not evidence.revises or evidence.failing or evidence.waits:
            return None
        count += evidence.round != last
        self._rows[key] = (count, evidence.round)
        if len(self._rows) > _TRACKED:
            self._rows.popitem(last=False)
        threshold = self._settings.tuning.calls.revision_threshold
        needed = evidence.needs(threshold)
        if count < needed:
            return None
        return Detection(
            detector=self.name,
            reason="revised_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (count - threshold)),
            keys=frozenset({key_of(f"{evidence.agent} {evidence.tool} revised".encode())}),
            count=count,
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} revised a text {count} times in a row, with hardly "
            "anything changed in what it got and what it gave",
            max_action=Action.HINT,
            advice="Take the text as it is, or say what exactly is still wrong with it.",
        )
