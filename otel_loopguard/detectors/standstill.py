"""Different calls that get the run no further."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action
from otel_loopguard.detectors.base import (
    READ,
    TRANSIENT,
    WRITE,
    BaseDetector,
    answer_of,
)
from otel_loopguard.detectors.counters import (
    ITEM,
    BestScores,
    DecayingCounter,
    LeakyCounter,
    RecentRounds,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Detection, Evidence

_OTHER: Final = 0.7
_TELLING: Final = 50
"""Characters from which an equal answer is no chance; a shorter one says as much less."""
_SHORT: Final = 0.38
"""What a mere word says: of nine questions with one, it is noticed."""
_VIEW: Final = 200
_VIEWS: Final = 8
_ELSEWHERE: Final = 0.3
_NUMBER: Final = re.compile(r"[A-Za-z]{0,2}\d+(?:\.\d+)?")
_ITEM: Final = re.compile(r"\"[^\"\s]{1,64}\"|'[^'\n]{1,64}'|\d+")


class Stagnation(BaseDetector):
    """Counts equal answers of one tool to different calls of one agent that only read.

    A short answer says little ("rainy", `[]`, `False` coincide), and nothing where the call differs
    from the one before in an item only: to check many things is no loop. An answer that the tool
    did not give before takes three tenths: it does answer. A hint at most: six questions that the
    tool has no answer to may be honest research.

    Of calls that press or scroll, which mean to change what they show, eight long answers are
    enough, whatever was changed elsewhere, if they differ in numbers only.
    """

    name = "stagnation"
    family = "standstill"
    sure = (0.9, 0.6, 0.05)
    reason = "same_answer"
    __slots__ = ("_answers", "_views")

    def reset(self) -> None:
        self._answers = DecayingCounter()
        self._views = DecayingCounter(across_changes=True)

    def user_turn(self) -> None:
        self._answers.halve()
        self._views.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.error or evidence.waits:
            return None
        if evidence.outcome is None or evidence.call is None:
            return None
        if evidence.effect is WRITE and evidence.outcome_size >= _VIEW:
            return self._act(evidence.outcome, evidence)
        # What was cut behind an equal beginning may differ.
        if evidence.effect is not READ or evidence.cut:
            return None
        return self._read(evidence.outcome, evidence)

    def _read(self, outcome: int, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool, outcome)
        telling = evidence.outcome_size >= _TELLING and not evidence.nothing and not evidence.item
        weight = 1.0 if telling else self._weight(key, evidence)
        # Of a longer answer nobody asks for which arguments it came.
        sample = evidence.sample if evidence.outcome_size < 2 * _TELLING else ""
        counted = self._answers.add(key, evidence, weight, sample)
        if counted is None:
            if self._answers.repeated:
                self._answers.decay_others(evidence.tool, key, _OTHER)
            return None
        threshold = self._settings.of(evidence.tool).repeat_threshold
        if len(counted.calls) < 2 or counted.count < evidence.needs(threshold) - 0.1:
            return None
        several = str(len(counted.calls)) if len(counted.calls) < 8 else "8 or more"
        message = (
            f"{evidence.tool!r} gave an equal {answer_of(evidence)} to {several} different calls"
        )
        return self.found(message, counted.count, threshold, outcome, evidence)

    def _act(self, view: int, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool, view)
        last = self._views.last(key)
        where = _NUMBER.sub("#", evidence.sample)
        weight = 1.0 if last is None or last.sample == where else _ELSEWHERE
        counted = self._views.add(key, evidence, weight, where)
        if counted is None:
            self._views.decay_others(evidence.tool, key, _OTHER)
            return None
        if counted.count < evidence.needs(_VIEWS) - 0.1:
            return None
        message = (
            f"{evidence.tool!r} acted {counted.times} times, and what it showed stayed as it was"
        )
        return self.found(message, counted.count, _VIEWS, view, evidence)

    def _weight(self, key: tuple[int, str, int], evidence: Evidence) -> float:
        size = evidence.outcome_size
        weight = min(max(size / _TELLING, _SHORT), 1.0)
        last = self._answers.last(key) if weight < 1.0 else None
        if (
            last is not None
            and last.sample != evidence.sample
            and _ITEM.sub("#", last.sample) == _ITEM.sub("#", evidence.sample)
        ):
            return 0.0
        well = size >= _TELLING and not evidence.failing and not evidence.rejects
        if evidence.item and evidence.place is None and (evidence.nothing or well):
            return min(weight, ITEM)
        return 0.0 if evidence.brief and not evidence.rejects else weight


class _LeakyDetector(BaseDetector):
    """A detector of one sign, counted for each agent."""

    __slots__ = ("_signs",)

    def reset(self) -> None:
        self._signs = LeakyCounter()

    def user_turn(self) -> None:
        self._signs.leak(0.5)


class Echo(_LeakyDetector):
    """Counts calls that got their own arguments back and nothing else.

    A program that prints the text that it holds looks busy and learns nothing. Every call in
    between that is no echo takes a fifth of the count.
    """

    name = "echo"
    family = "standstill"
    signs = ("echo",)
    lasting = True
    sure = (0.8, 0.55, 0.05)
    reason = "echo"
    __slots__ = ()

    def observe(self, evidence: Evidence) -> Detection | None:
        if (
            not evidence.echo
            or evidence.error
            or evidence.waits
            or evidence.effect is WRITE
            or evidence.outcome_size < 40
        ):
            self._signs.leak(0.8, evidence.agent)
            return None
        count, calls = self._signs.add(evidence)
        threshold = self._settings.tuning.calls.echo_threshold
        if count < evidence.needs(threshold) - 0.1:
            return None
        message = f"{evidence.tool!r} gave back what it was given {calls} times, and nothing else"
        keys = key_of(f"{self.name}\0{evidence.tool}".encode())
        return self.found(message, count, threshold, keys, evidence)


class FoundNothing(_LeakyDetector):
    """Counts new questions whose answer says that nothing was found, in whatever words.

    An answer that finds something takes three tenths of the count, a successful change all. Items
    that do not exist and pages weigh less. A hint at most: to look where nothing is may be what was
    asked for.
    """

    name = "found_nothing"
    family = "standstill"
    signs = ("nothing",)
    lasting = True
    sure = (0.8, 0.55, 0.05)
    reason = "found_nothing"
    __slots__ = ()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits:
            return None
        if evidence.error or not evidence.nothing or not evidence.fresh:
            if evidence.effect is WRITE and not evidence.error:
                self._signs.leak(0)
            elif not evidence.nothing:
                self._signs.leak(0.7, evidence.agent)
            return None
        weight = 0.5 if evidence.place is not None else ITEM if evidence.item else 1.0
        count, calls = self._signs.add(evidence, weight)
        threshold = self._settings.tuning.calls.nothing_threshold
        if count < evidence.needs(threshold) - 0.1:
            return None
        message = f"{calls} different calls, of {evidence.tool!r} the last, found nothing"
        return self.found(message, count, threshold, key_of(self.name.encode()), evidence)


_GRINDING: Final = key_of(b"grinding")
_QUESTIONS: Final = 8
_KNOWN: Final = 0.05
"""New share of an answer whose parts were only put in another order."""
_LONG: Final = 200
_IN_WORDS: Final = re.compile(r"(?:[^\W\d_]{2,40} ){2}[^\W\d_]{2}")


def _asks(evidence: Evidence) -> bool:
    """Whether it asks a new question, in words, that has a long answer."""
    return (
        evidence.effect is READ
        and evidence.fresh
        and not evidence.runs_code
        and evidence.place is None
        and evidence.outcome_size >= _LONG
        and _IN_WORDS.search(evidence.sample) is not None
    )


@dataclass(slots=True)
class _Newest:
    """What was new in each of the newest rounds of one agent, and their sum."""

    news: list[float] = field(default_factory=list[float])
    sum: float = 0.0
    epoch: int = 0
    round: int = -1
    questions: int = 0

    def clear(self) -> None:
        self.news.clear()
        self.sum = 0.0
        self.questions = 0


class Grinding(BaseDetector):
    """Looks at what part of the newest answers was not seen before by the agent.

    Only where nothing was changed and none of them was a wait. Over fewer calls healthy runs look
    the same; novelty alone says little, so it hints at most. Of questions in words, each another
    one with a long answer of which all was known, eight are enough.
    """

    name = "grinding"
    family = "standstill"
    sure = (0.6, 0.6, 0)
    reason = "nothing_new"
    __slots__ = ("_agents",)

    def reset(self) -> None:
        self._agents: dict[int, _Newest] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        tuning = self._settings.tuning.calls
        newest = self._agents.get(evidence.agent)
        if newest is None:
            newest = _Newest()
            keep(self._agents, evidence.agent, newest, 32)
        if evidence.epoch != newest.epoch:
            newest.epoch = evidence.epoch
            newest.clear()
        if evidence.novelty is None or evidence.waits:
            newest.clear()
            return None
        # That a call was carried out, or one word about one of many items, is all it can say.
        transient = evidence.error_class is TRANSIENT
        hidden = evidence.cut and evidence.fresh
        known = evidence.novelty <= tuning.grinding_novelty
        well = evidence.outcome_size >= _TELLING and not evidence.failing and not evidence.rejects
        brief = (evidence.brief and known) or (evidence.item and (evidence.nothing or well))
        if transient or hidden or evidence.effect is WRITE or brief:
            return None
        # Another answer than ever to an equal call is news, be it one digit.
        news, novelty = newest.news, 1.0 if evidence.changed else evidence.novelty
        if evidence.round == newest.round and news:
            # Of one round the answer that brought the most counts.
            newest.sum += max(novelty - news[-1], 0.0)
            news[-1] = max(novelty, news[-1])
        else:
            newest.round = evidence.round
            if len(news) == tuning.grinding_calls:
                newest.sum -= news.pop(0)
            news.append(novelty)
            newest.sum += novelty
            newest.questions = newest.questions + 1 if _asks(evidence) and novelty <= _KNOWN else 0
        known = len(news)
        if newest.questions >= evidence.needs(_QUESTIONS):
            known = newest.questions
        elif known != tuning.grinding_calls or (
            newest.sum * evidence.ease > tuning.grinding_novelty * known
        ):
            return None
        message = f"the last {known} calls brought next to nothing that was not seen before"
        return self.found(message, known, known, _GRINDING)


_IDLE_COMMAND: Final = key_of(b"idle_command")


class IdleCommand(BaseDetector):
    """Counts rounds whose command does nothing: `:`, a comment, punctuation, a bare `echo`.

    They are all equal to each other, whatever they say. A hint at most where they are less than
    half of the calls: who writes notes with `echo` beside real work is not stuck.
    """

    name = "idle_command"
    family = "standstill"
    signs = ("idle",)
    sure = (0.95, 0.75, 0.03)
    reason = "does_nothing"
    advice = "Write the command itself, without anything in front of it."
    __slots__ = ("_recent",)

    def reset(self) -> None:
        self._recent = RecentRounds(self._settings.tuning.calls.idle_window)

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.idle:
            return None
        rounds = self._recent.add(evidence)
        threshold = self._settings.tuning.calls.idle_threshold
        if rounds * self._settings.sensitivity < threshold:
            return None
        share = rounds / max(evidence.number - self._recent.first + 1, 1)
        message = (
            f"{rounds} of the last commands of {evidence.tool!r} do nothing, whatever "
            "stands behind them"
        )
        keys = self._recent.calls | {_IDLE_COMMAND}
        # Half of it work, half of it remarks: who writes notes is not stuck.
        weight = min(max(4 * share - 2, 0.0), 1.0) if evidence.call is not None else 0.0
        return self.found(message, rounds, threshold, keys, max_action=Action.ABORT, weight=weight)


_NO_BETTER_SCORE: Final = key_of(b"no_better_score")


class NoBetterScore(BaseDetector):
    """Counts tries since a number under one name was lower or higher than ever.

    Recorded at every sixth try; nothing else follows, for a plateau may be the best there is.
    """

    name = "no_better_score"
    family = "standstill"
    signs = ("score",)
    sure = (0.6, 0.6, 0)
    reason = "no_better_score"
    max_action = Action.ALLOW
    __slots__ = ("_scores",)

    def reset(self) -> None:
        self._scores = BestScores()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.score is None:
            return None
        counted = self._scores.add(evidence)
        threshold = self._settings.tuning.calls.score_threshold
        if counted is None or counted[0] == 0 or counted[0] % threshold:
            return None
        tries = counted[0]
        message = f"a number that {evidence.tool!r} measures was no better in {tries} tries"
        keys = evidence.score[0] ^ _NO_BETTER_SCORE
        return self.found(message, tries, threshold, keys, own=Action.ALLOW)


_ALIKE: Final = 60.0
"""Percent of two commands that are common where they try the same."""


class _Tried(NamedTuple):
    tool: str
    call: int | None
    sample: str


class _Edited(NamedTuple):
    edits: int
    last: int


class RepeatedEdit(BaseDetector):
    """Counts edits of one file between which a test, a build or a program failed.

    A file that is written in many parts is work. A green result begins again for all files: what
    failed before passes now, or a number that is measured is better than ever. A hint at most, for
    hard problems take many tries.
    """

    name = "repeated_edit"
    family = "standstill"
    signs = ("file", "failing", "rejects", "score")
    lasting = True
    sure = (0.8, 0.6, 0.03)
    reason = "no_green_result"
    advice = "Find out why it fails before the next edit, or go back to what worked."
    __slots__ = ("_edited", "_failed", "_last_failed", "_scores")

    def reset(self) -> None:
        self._edited: dict[int, _Edited] = {}
        self._failed: list[_Tried] = []
        self._scores = BestScores()
        self._last_failed = -1

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.file is None:
            self._try(evidence)
            return None
        if evidence.failing:
            return None
        before = self._edited.get(evidence.file)
        again = before is not None and self._last_failed > before.last
        edits = 1 if before is None else before.edits + again
        keep(self._edited, evidence.file, _Edited(edits, evidence.number), 64)
        threshold = self._settings.tuning.calls.edit_threshold
        if not again or edits * self._settings.sensitivity < threshold:
            return None
        message = f"one file was edited {edits} times, and what was tried after each edit failed"
        return self.found(message, edits, threshold, evidence.file)

    def _try(self, evidence: Evidence) -> None:
        """Keeps what failed; what passes now, or measures better than ever, begins again."""
        measured = self._scores.add(evidence)
        if measured is not None and measured[1]:
            self._edited.clear()
        if not evidence.failing and not evidence.rejects:
            if any(self._is_same(failed, evidence) for failed in self._failed):
                self.reset()
        elif (
            # Wrong usage is no try, and neither is a transient error.
            not evidence.refused
            and (evidence.runs_code or evidence.rejects)
            and evidence.error_class is not TRANSIENT
        ):
            tried = _Tried(evidence.tool, evidence.call, evidence.sample)
            self._failed = [*self._failed[-15:], tried]
            self._last_failed = evidence.number

    @staticmethod
    def _is_same(failed: _Tried, evidence: Evidence) -> bool:
        """Whether a call tries what failed; without their arguments it is taken for the same."""
        if failed.tool != evidence.tool:
            return False
        if failed.call is None or failed.call == evidence.call or not failed.sample:
            return True
        return fuzz.ratio(failed.sample, evidence.sample, score_cutoff=_ALIKE) > 0


_RETURNS: Final = 3
"""Times that a file is changed back: once or twice is how people try things out."""


class BackToState(BaseDetector):
    """Counts changes of a file that were made before, with another change of it in between.

    Every edit succeeds, and the file goes through the same versions again. A hint at most: to
    switch something on and off may be the work.
    """

    name = "back_to_state"
    family = "standstill"
    signs = ("file",)
    sure = (0.85, 0.6, 0.05)
    reason = "state_seen_before"
    advice = "Say what each version was tried for, and try one that is new."
    __slots__ = ("_files",)

    def reset(self) -> None:
        self._files: dict[int, tuple[tuple[int, ...], int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        file, change = evidence.file, evidence.call
        if file is None or change is None or evidence.failing:
            return None
        made, returns = self._files.get(file, ((), 0))
        if made and made[-1] == change:
            return None
        returns += change in made
        keep(self._files, file, ((*made[-15:], change), returns), 64)
        if change not in made or returns < evidence.needs(_RETURNS):
            return None
        message = f"one file was changed back to what it had been {returns} times"
        return self.found(message, returns, _RETURNS, file, evidence)


class SameVerdict(BaseDetector):
    """Counts equal answers of one tool that turn down what was tried ("failed", "wrong").

    A test that fails in the same way after every edit is work for a while: changes in between do
    not matter, and it leads to a hint. Tries with no change between them reach a stop together at
    `verdict_climb`: who types in one password after another (278 in a recorded run) does not stop
    by being told so. Failures of the call itself are `error_repeat`'s.
    """

    name = "same_verdict"
    family = "standstill"
    signs = ("rejects",)
    sure = (0.8, 0.6, 0.03)
    reason = "same_verdict"
    __slots__ = ("_verdicts",)

    def reset(self) -> None:
        self._verdicts = DecayingCounter(across_changes=True)

    def user_turn(self) -> None:
        self._verdicts.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits or evidence.error:
            return None
        if not evidence.rejects or evidence.outcome_size < 12:
            return None
        key = (evidence.agent, evidence.tool, evidence.outcome)
        last = self._verdicts.last(key)
        changed = last is not None and evidence.epoch != last.epoch
        another_try = last is None or evidence.fresh or evidence.epoch != last.epoch
        weight = 1.0 if another_try else 0.5
        counted = self._verdicts.add(key, evidence, weight)
        if counted is None:
            return None
        tuning = self._settings.tuning.calls
        threshold = tuning.verdict_threshold
        if counted.count < evidence.needs(threshold) - 0.1:
            return None
        tries = evidence.needs(tuning.verdict_climb) - evidence.needs(threshold)
        identity = 0.0 if changed or evidence.call is None else 1.0 / max(tries, 1.0)
        what = "failed" if evidence.failing else "turned down what was tried"
        message = (
            f"{evidence.tool!r} {what} {counted.times} times with an equal {answer_of(evidence)}"
        )
        return self.found(
            message,
            counted.count,
            threshold,
            evidence.outcome,
            evidence,
            max_action=Action.ABORT,
            weight=identity * evidence.stop_weight,
        )


@dataclass(slots=True)
class _Range:
    """The places of one range that were read, in order, and how often one was read again."""

    epoch: int
    places: list[float] = field(default_factory=list[float])
    last: float = 0.0
    stride: float = 0.0
    wrapped: bool = False
    again: float = 0.0
    round: int = -1

    def add(self, place: float, number: int) -> bool:
        """Adds a place; whether it lies in what was read through, counted once in a round."""
        if place < self.last:
            self.wrapped = True
        places = self.places
        right, known = bisect_left(places, place), len(places)
        here = right < known and places[right] == place
        between = 0 < right < known and places[right] - places[right - 1] <= 1.5 * self.stride
        again = self.wrapped and known >= 5 and (here or between)
        if again:
            self.again += number != self.round
            self.round = number
        if places and place > self.last:
            step = place - self.last
            self.stride = step if not self.stride else min(self.stride, step)
        if known < 256 and not here:
            insort(places, place)
        self.last = place
        return again


class Sweep(BaseDetector):
    """Counts calls that page through a range again, whatever the answers say.

    After the first step back, a place between two that were read and lie no further apart than one
    and a half strides is read again. Only the arguments show it: the answers of a sweep that wraps
    around, shifted by half a page, are all new.
    """

    name = "sweep"
    family = "standstill"
    signs = ("place",)
    sure = (0.85, 0.6, 0.02)
    reason = "read_again"
    __slots__ = ("_ranges",)

    def reset(self) -> None:
        self._ranges: dict[int, _Range] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.place is None or evidence.waits or evidence.effect is WRITE:
            return None
        key, place = evidence.place
        read = self._ranges.get(key)
        if read is None or read.epoch != evidence.epoch:
            read = _Range(evidence.epoch)
        keep(self._ranges, key, read, 16)
        threshold = self._settings.tuning.calls.sweep_threshold
        if not read.add(place, evidence.round) or read.again < evidence.needs(threshold):
            return None
        message = (
            f"{evidence.tool!r} read {read.again:g} places again that it had read through before"
        )
        return self.found(message, read.again, threshold, key, evidence)


class RevisedInVain(BaseDetector):
    """Counts calls in a row of one tool whose arguments and answer are nearly the last ones.

    It is `refinement_spiral` for tools: a draft goes in, a draft comes out, and two words differ.
    What other tools do in between does not matter. A call that fails or waits ends a row.
    """

    name = "revised_in_vain"
    family = "standstill"
    signs = ("revises",)
    lasting = True
    sure = (0.8, 0.6, 0.03)
    reason = "revised_in_vain"
    advice = "Take the text as it is, or say what exactly is still wrong with it."
    __slots__ = ("_rows",)

    def reset(self) -> None:
        self._rows: dict[tuple[int, str], tuple[int, int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool)
        count, last = self._rows.pop(key, (0, -1))
        if not evidence.revises or evidence.failing or evidence.waits:
            return None
        count += evidence.round != last
        keep(self._rows, key, (count, evidence.round), 16)
        threshold = self._settings.tuning.calls.revision_threshold
        if count < evidence.needs(threshold):
            return None
        message = (
            f"{evidence.tool!r} revised a text {count} times in a row, with hardly "
            "anything changed in what it got and what it gave"
        )
        keys = key_of(f"{evidence.agent} {evidence.tool} revised".encode())
        return self.found(message, count, threshold, keys, evidence)
