"""Different calls that get the run no further."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Evidence, Severity
from otel_loopguard.detectors.counters import (
    ITEM,
    Bests,
    DecayingCounter,
    LeakyCounters,
    Recent,
    Tallied,
    answer_of,
)

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_OTHER: Final = 0.7
_ITEM: Final = re.compile(r"\"[^\"\s]{1,64}\"|'[^'\n]{1,64}'|\d+")


class Stagnation:
    """Counts equal answers of one tool to moving arguments, for calls known to change nothing.

    Of each agent by itself: several that read the same are no loop.

    A short answer says little ("rainy", `[]`, `False` coincide): from 40 characters it weighs 1.0,
    from 16 on 0.7, below 0.45. Below that it does not count at all where the call differs from the
    one before in an item only (a number, a name): to check many things is no loop. An answer that
    the tool did not give before takes three tenths of what was counted: it does answer. A detection
    from `repeat_threshold` (3). It leads to a hint at most: six questions that the tool has no
    answer to may be honest research, and only the agent can tell. For a call that changes something
    an equal answer ("ok") is normal.

    Source: `notes/evidence.md`, lesson 5; misses N5 and N6 of `notes/detectors.md`.
    """

    name = "stagnation"
    family = "standstill"
    __slots__ = ("_settings", "_tally")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = DecayingCounter()

    def user_turn(self) -> None:
        self._tally.halve()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.error or evidence.waits or evidence.effect is not Effect.READ:
            return None
        if evidence.outcome is None or evidence.call is None or evidence.bare:
            return None
        key = (evidence.agent, evidence.tool, evidence.outcome)
        weight = weight_of(evidence.outcome_size)
        if weight < 1.0 and _one_of_many(self._tally.last(key), evidence.sample):
            weight = 0.0
        elif evidence.item and evidence.nothing and evidence.place is None:
            weight = min(weight, ITEM)
        tallied = self._tally.add(key, evidence, weight)
        if tallied is None:
            self._tally.answered(evidence.tool, key, _OTHER)
        elif len(tallied.calls) >= 2:
            return self._judge(evidence, tallied)
        return None

    def _judge(self, evidence: Evidence, tallied: Tallied) -> Detection | None:
        threshold = self._settings.of(evidence.tool).repeat_threshold
        if tallied.count < evidence.needs(threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="same_answer",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.6 + 0.05 * (tallied.count - threshold)),
            keys=frozenset({evidence.outcome or 0}),
            count=round(tallied.count, 2),
            threshold=evidence.shown(threshold),
            message=f"{evidence.tool!r} gave an equal {answer_of(evidence)} to "
            f"{_several(len(tallied.calls))} different calls",
            max_action=Action.HINT,
        )


def _one_of_many(last: Tallied | Evidence | None, now: str) -> bool:
    """Whether two calls ask the same of two items: they differ in numbers or single words only."""
    if last is None or last.sample == now:
        return False
    return _ITEM.sub("#", last.sample) == _ITEM.sub("#", now)


def weight_of(size: int) -> float:
    """What an equal answer weighs, by its characters."""
    return 1.0 if size >= 40 else 0.7 if size >= 16 else 0.45


def _several(calls: int) -> str:
    return str(calls) if calls < 8 else "8 or more"


_LESS: Final = 0.7
_PAGE: Final = 0.5


class FoundNothing:
    """Counts new questions whose answer says that nothing was found, in whatever words.

    An answer that finds something takes three tenths, a successful change all of what was counted.
    One item after the other that is not there counts 0.22, so that it takes 15 of them, and a page
    half. A detection from `tuning.calls.nothing_threshold` (4). It leads to a hint at most: to look
    where nothing is may be what was asked for.

    Source: `notes/evidence.md`, row "found nothing outcomes".
    """

    name = "found_nothing"
    family = "standstill"
    __slots__ = ("_rows", "_threshold")

    def __init__(self, settings: Settings) -> None:
        self._threshold = settings.tuning.calls.nothing_threshold
        self._rows = LeakyCounters()

    def user_turn(self) -> None:
        self._rows.leak(0.5)

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits:
            return None
        if evidence.error or not evidence.nothing or not evidence.fresh:
            self._found(evidence)
            return None
        count = self._rows.of(evidence.agent).add(evidence.round, self._weight(evidence))
        if count < evidence.needs(self._threshold) - 0.1:
            return None
        return Detection(
            detector=self.name,
            reason="found_nothing",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.55 + 0.05 * (count - self._threshold)),
            keys=frozenset({key_of(self.name.encode())}),
            count=round(count, 2),
            threshold=evidence.shown(self._threshold),
            message=f"{round(count)} different calls, of {evidence.tool!r} the last, found nothing",
            max_action=Action.HINT,
        )

    def _weight(self, evidence: Evidence) -> float:
        if evidence.place is not None:
            return _PAGE
        return ITEM if evidence.item else 1.0

    def _found(self, evidence: Evidence) -> None:
        if evidence.effect is Effect.WRITE and not evidence.error:
            self._rows.leak(0)
        elif not evidence.nothing:
            self._rows.of(evidence.agent).leak(_LESS)


_AGENTS: Final = 32
_KEYS: Final = frozenset({key_of(b"grinding")})


@dataclass(slots=True)
class _Newest:
    """The newest rounds of one agent: what was new in each, and their sum."""

    news: deque[float]
    sum: float = 0.0
    epoch: int = 0
    round: int = -1

    def add(self, novelty: float, number: int) -> None:
        """Takes an answer; of one round the one that brought the most counts."""
        news = self.news
        if number == self.round and news:
            self.sum += max(novelty - news[-1], 0.0)
            news[-1] = max(novelty, news[-1])
            return
        self.round = number
        if len(news) == news.maxlen:
            self.sum -= news[0]
        news.append(novelty)
        self.sum += novelty

    def start(self) -> None:
        """Begins anew."""
        self.news.clear()
        self.sum = 0.0


class Grinding:
    """Looks at the newest answers: what part of them was not seen before by the agent.

    A detection if `tuning.calls.grinding_novelty` (10 %) or less of the newest
    `tuning.calls.grinding_calls` (20) answers was new, nothing was changed in between, and none of
    them was a wait. Calls of one round count once. Over fewer calls healthy runs look the same. It
    leads to a hint at most.

    Source: `notes/evidence.md`, lesson 7 ("novelty is worthless alone"), miss N7 of
    `notes/detectors.md`.
    """

    name = "grinding"
    family = "standstill"
    __slots__ = ("_agents", "_calls", "_line")

    def __init__(self, settings: Settings) -> None:
        self._line = settings.tuning.calls.grinding_novelty
        self._calls = settings.tuning.calls.grinding_calls
        self._agents: dict[int, _Newest] = {}

    def user_turn(self) -> None:
        """What was asked before was asked for something else."""
        self._agents.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        newest = self._of(evidence.agent)
        if evidence.epoch != newest.epoch:
            newest.epoch = evidence.epoch
            newest.start()
        if evidence.novelty is None or evidence.waits:
            newest.start()
            return None
        # That a call was carried out, or that one of many items is not there, is all it can say.
        passing = evidence.error_class is ErrorClass.TRANSIENT
        if passing or evidence.bare or evidence.acts or (evidence.item and evidence.nothing):
            return None
        newest.add(evidence.novelty, evidence.round)
        known = len(newest.news)
        if known != self._calls or newest.sum * evidence.ease > self._line * known:
            return None
        return Detection(
            detector=self.name,
            reason="nothing_new",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=_KEYS,
            count=known,
            threshold=known,
            message=f"the last {known} calls brought next to nothing that was not seen before",
            max_action=Action.HINT,
        )

    def _of(self, agent: int) -> _Newest:
        newest = self._agents.get(agent)
        if newest is None:
            newest = self._agents[agent] = _Newest(deque(maxlen=self._calls))
            if len(self._agents) > _AGENTS:
                del self._agents[next(iter(self._agents))]
        return newest


_KEY: Final = key_of(b"idle_command")


class IdleCommand:
    """Counts rounds whose command does nothing: `:`, a comment, punctuation, a bare `echo`.

    They are all equal to each other, whatever they say. A detection from
    `tuning.calls.idle_threshold` (4) rounds of the last `tuning.calls.idle_window` (40) calls; what
    is done in between does not matter. Where they are less than half of the calls since the first
    of them, it leads to a hint at most: who writes notes with `echo` beside real work is not stuck.

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
        self._recent = Recent(self._settings.tuning.calls.idle_window, 64)

    def observe(self, evidence: Evidence) -> Detection | None:
        if not evidence.idle:
            return None
        rounds = self._recent.add(evidence.number, evidence.round, evidence.call)
        threshold = self._settings.tuning.calls.idle_threshold
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


_SCORE_KEY: Final = key_of(b"no_better_score")


class NoBetterScore:
    """Counts tries since a number under one name was better than ever.

    The number is what the answer of a tool measures last: a score, accuracy, loss, failures. Which
    way is better nobody knows, so a new highest number is better, and so is a new lowest one. A try
    is another call, or the same one after a change; tries of one round are one.

    From `tuning.calls.score_threshold` (6) tries on it is noted on the trace, at every sixth;
    nothing else follows, for a plateau may be the best there is.

    Source: FEATURES W11; no recorded solved run has more than 1 try.
    """

    name = "no_better_score"
    family = "standstill"
    __slots__ = ("_bests", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bests = Bests()

    def user_turn(self) -> None:
        """What was measured before was measured for something else."""
        self._bests.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.score is None:
            return None
        counted = self._bests.add(evidence)
        if counted is None:
            return None
        tries = counted[0].tries
        threshold = self._settings.tuning.calls.score_threshold
        if tries == 0 or tries % threshold:
            return None
        return Detection(
            detector=self.name,
            reason="no_better_score",
            severity=Severity.WARNING,
            confidence=0.6,
            keys=frozenset({evidence.score[0] ^ _SCORE_KEY}),
            count=tries,
            threshold=threshold,
            message=f"a number that {evidence.tool!r} measures was no better in {tries} tries",
            max_action=Action.ALLOW,
            own=Action.ALLOW,
        )


_FILES: Final = 64
_FAILED: Final = 16
_ALIKE: Final = 60.0
"""Percent of two commands that are common where they try the same."""


class _Failed(NamedTuple):
    """What was tried, and failed."""

    tool: str
    call: int | None
    sample: str


@dataclass(slots=True)
class _Edited:
    """Edits of one file, each with a failure after the one before, and the number of the last."""

    edits: int
    last: int


class RepeatedEdit:
    """Counts edits of one file between which a test, a build or a program failed.

    A file is what `file_path`, `path`, `filename` or the like names in a call that writes. An edit
    counts if something that runs failed, or an answer turned down what was tried, since the edit
    before: a file that is written in many parts is work. A green result begins anew for all files:
    what failed before passes now, the same call or one whose arguments are alike by 60 %, or a
    number that is measured (failures, a score) is better than ever. A detection from
    `tuning.calls.edit_threshold` (12) edits on; it leads to a hint and no further, for hard
    problems take many tries.

    Edits that fail, failures that were no try (wrong usage, no such command) and transient errors
    do not count.

    Source: `notes/agents.md`, wish 8; on 471 recorded solved runs no file had more than 3.
    """

    name = "repeated_edit"
    family = "standstill"
    __slots__ = ("_bests", "_edited", "_failed", "_last_failed", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.user_turn()

    def user_turn(self) -> None:
        """What was edited before was edited for something else."""
        self._edited: OrderedDict[int, _Edited] = OrderedDict()
        self._failed: deque[_Failed] = deque(maxlen=_FAILED)
        self._bests = Bests()
        self._last_failed = -1

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.file is None:
            self._tried(evidence)
            return None
        if evidence.failing:
            return None
        edited = self._edited.pop(evidence.file, None)
        again = edited is not None and self._last_failed > edited.last
        edits = 1 if edited is None else edited.edits + again
        self._edited[evidence.file] = _Edited(edits, evidence.number)
        if len(self._edited) > _FILES:
            self._edited.popitem(last=False)
        threshold = self._settings.tuning.calls.edit_threshold
        if not again or edits * self._settings.sensitivity < threshold:
            return None
        return Detection(
            detector=self.name,
            reason="no_green_result",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.6 + 0.03 * (edits - threshold)),
            keys=frozenset({evidence.file}),
            count=edits,
            threshold=threshold,
            message=f"one file was edited {edits} times, and what was tried after each edit failed",
            max_action=Action.HINT,
            advice="Find out why it fails before the next edit, or go back to what worked.",
        )

    def _tried(self, evidence: Evidence) -> None:
        """Notes what failed; what passes now, or measures better than ever, begins anew."""
        measured = self._bests.add(evidence)
        if measured is not None and measured[1]:
            self._edited.clear()
        failed = evidence.failing or evidence.rejects
        if not failed:
            if self._failed and any(self._same(one, evidence) for one in self._failed):
                self.user_turn()
            return
        if evidence.refused or not (evidence.runs_code or evidence.rejects):
            return
        if evidence.error_class is ErrorClass.TRANSIENT:
            return
        self._failed.append(_Failed(evidence.tool, evidence.call, evidence.sample))
        self._last_failed = evidence.number

    @staticmethod
    def _same(failed: _Failed, evidence: Evidence) -> bool:
        """Whether a call tries what failed: without their arguments nobody can tell, so it does."""
        if failed.tool != evidence.tool:
            return False
        if failed.call is None or failed.call == evidence.call or not failed.sample:
            return True
        return fuzz.ratio(failed.sample, evidence.sample, score_cutoff=_ALIKE) > 0


_SHORT: Final = 12
_AGAIN: Final = 0.5
_TRACKED: Final = 32
_CLIMB: Final = ((0, Action.STEER), (2, Action.ASK), (4, Action.ABORT))
"""How far it goes, by tries beyond `tuning.calls.verdict_climb`."""


class SameVerdict:
    """Counts equal answers of one tool that turn down what was tried.

    A test that fails in the same way after every edit is work for a while: so changes in between do
    not matter, and neither do the arguments, but it takes `tuning.calls.verdict_threshold` (6)
    tries. A try is another call, or the same one after a change; the same one again is half a try.
    An answer turns down if it says so in words (did not pass, failed, wrong, …) and has 12
    characters or more; failures of the call itself are `error_repeat`'s.

    It leads to a hint. Only from `tuning.calls.verdict_climb` (20) tries on between which nothing
    was changed it asks for another way, two tries later for a person, and four tries later it
    stops: who types in one password after another does not stop by being told so. Errors that turn
    down what was tried count there as well.

    Source: `notes/detectors.md`, recommendation 5 ("if epochs advance but the verifier's
    fingerprint stays equal about 6 times: hint, never abort"); `notes/evidence.md`, "Same verifier
    answer across epochs"; a recorded run of 278 passwords, one call each.
    """

    name = "same_verdict"
    family = "standstill"
    __slots__ = ("_guesses", "_settings", "_tally")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = DecayingCounter(across_changes=True)
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
        needed = evidence.needs(self._settings.tuning.calls.verdict_threshold) - 0.1
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
        climb = evidence.needs(self._settings.tuning.calls.verdict_climb) - 0.1
        reached = [action for beyond, action in _CLIMB if guesses >= climb + beyond]
        return reached[-1] if reached and evidence.call is not None else Action.HINT

    def _detection(self, evidence: Evidence, count: float, strongest: Action) -> Detection:
        threshold = self._settings.tuning.calls.verdict_threshold
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


_OLD: Final = 0.1
_TOOLS: Final = 256
_LOOP: Final = 0x73686F70


class ToolShopping:
    """Counts different tools in a row that were tried in vain.

    In vain means: the call failed, found nothing, only echoed its arguments, or said what was
    known before (up to 0.1 of it new). A tool was merely tried if it was called
    `tuning.text.shop_calls` (2) times at most; one that is called more often belongs to other
    detectors. A detection from `tuning.text.shop_tools` (5) such tools on. Any call that brings
    news, changes something, or whose outcome was not captured, starts the row anew. Transient
    errors are not the agent's doing, and neither count nor help. It hints at most.

    Source: FEATURES D7.
    """

    name = "tool_shopping"
    family = "text"
    takes = Evidence
    __slots__ = ("_calls", "_first", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._calls: dict[str, int] = {}
        self._first: int | None = None

    def user_turn(self) -> None:
        """A user spoke: another task may need other tools."""
        self._over()

    def observe(self, evidence: Evidence) -> Detection | None:
        """Takes one call; gives a detection if it is one tool too many."""
        if evidence.error and evidence.error_class is ErrorClass.TRANSIENT:
            return None
        if not _in_vain(evidence):
            self._over()
            return None
        if len(self._calls) < _TOOLS or evidence.tool in self._calls:
            self._calls[evidence.tool] = self._calls.get(evidence.tool, 0) + 1
        if self._first is None:
            self._first = evidence.number ^ _LOOP
        most = self._settings.tuning.text.shop_calls
        tried = sum(calls <= most for calls in self._calls.values())
        return self._detection(tried) if tried >= self._settings.tuning.text.shop_tools else None

    def _over(self) -> None:
        self._calls.clear()
        self._first = None

    def _detection(self, tried: int) -> Detection:
        most = self._settings.tuning.text.shop_calls
        return Detection(
            detector=self.name,
            reason="tools_tried_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.5 + 0.05 * tried),
            keys=frozenset({self._first or _LOOP}),
            count=tried,
            threshold=self._settings.tuning.text.shop_tools,
            message=f"{tried} different tools were tried in a row, each {most} times at most, and "
            "each failed, found nothing, or said nothing new",
            max_action=Action.HINT,
            advice="Say what is missing before the next tool is tried, or ask for it.",
        )


def _in_vain(evidence: Evidence) -> bool:
    """Whether nothing came of a call; an outcome that was not captured may be news."""
    if evidence.error or evidence.nothing or evidence.echo:
        return True
    if evidence.effect is Effect.WRITE or evidence.effect is Effect.WAIT:
        return False
    # To look again at what brought something once is no new attempt.
    return evidence.fresh and evidence.novelty is not None and evidence.novelty <= _OLD
