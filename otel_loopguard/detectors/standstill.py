"""Different calls that get the run no further."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from rapidfuzz import fuzz
from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action
from otel_loopguard.core.evidence import says
from otel_loopguard.detectors.base import (
    ACROSS,
    FOREVER,
    ITEM,
    READ,
    TRANSIENT,
    VALUES,
    WRITE,
    BaseDetector,
    BestScores,
    CountingDetector,
    reaches,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.core.evidence import Evidence

_OTHER: Final = 0.7
"""Share that another answer of the tool leaves: the tool does answer."""
_LINE: Final = 50
"""Characters from which an equal answer is no coincidence; shorter ones weigh proportionally
less."""
_WORD: Final = 0.38
"""Weight of a single word: the ninth question with it is reported."""
_UNKNOWN: Final = 0.5
"""Weight of a page from a tool that is not known to read: six of them are reported. Shorter answers
weigh less, as words recur by chance: a line is reported at the tenth, a receipt of two words
never."""
_NEARLY: Final = 0.5
"""Weight of a page that is nearly the previous one, or the same in another order: the fourth pod of
a service looks like the others."""
_ITEM: Final = re.compile(r"\"[^\"\s]{1,64}\"|'[^'\n]{1,64}'|\d+")
_WORDS: Final = re.compile(r"[^\W\d]+")


class Stagnation(CountingDetector):
    """Does one tool give the same answer to different questions?

    Counts: equal answers to calls that only read, short ones and nearly equal pages less; half of
    that of unknown tools, whatever was changed in between.
    Leaves alone: short answers about item after item; what was cut. Another answer takes three
    tenths.
    Cannot see: calls whose arguments are not captured.
    """

    name = "stagnation"
    counting: ClassVar = {"rare": True}
    __slots__ = ()

    def observe(self, evidence: Evidence) -> Detection | None:
        outcome = evidence.content
        if outcome is None or evidence.call is None or evidence.error or evidence.waits:
            return None
        reads = evidence.effect is READ
        # What was cut behind an equal beginning may differ, and who is asked once more in another
        # turn was not answered by it.
        if evidence.effect is WRITE or evidence.cut or evidence.anew:
            return None
        key = hash((evidence.agent, evidence.tool, outcome))
        last = self._counts.get(key)
        exact = evidence.outcome_exact
        before, was, equal, since = last.mark if last else ("", exact, True, evidence.epoch)
        varied = was != exact
        equal = equal and not varied
        weight = _weight(evidence, before, reads=reads)
        if last is not None and last.times == 1 and evidence.item:
            # Only with the second item it is known that the first was one.
            last.count = min(last.count, weight)
        if last is not None:
            weight = _weight_again(evidence, weight, varied=varied)
        # Of a longer answer nobody asks for which arguments it came.
        sample = evidence.sample if evidence.outcome_size < 2 * _LINE else ""
        mark = sample, exact, equal, since
        # What is known to read was asked again because something was changed, as a test is.
        counted = self._counts.add(key, last, evidence, weight, *mark, changes=reads)
        if counted is None:
            if self._counts.repeated:
                tool = evidence.tool
                self._counts.scale(lambda _, one: _OTHER if tool in one.tools else 1.0)
            return None
        threshold = self._settings.of(evidence.tool).repeat_threshold
        if not reaches(counted.count, evidence.needs(threshold)):
            return None
        rule = "same_answer" if equal else "same_answer.varied"
        if counted.different < 2:
            # One call between which nothing was changed is another detector's, and what is given
            # back is a receipt, which shows no state.
            if evidence.echo or 2 * (evidence.epoch - since) < counted.times:
                return None
            rule = "same_answer.unmoved"
        return self.found(
            rule, counted.count, threshold, outcome, evidence, different=counted.different,
            times=counted.times,
        )  # fmt: skip


def _weight(evidence: Evidence, before: str, *, reads: bool) -> float:
    """Weight of an answer; less of one that is of an unknown tool."""
    size = evidence.outcome_size
    telling = size >= _LINE and not evidence.nothing and not evidence.item
    weight = 1.0 if telling else _weight_of_short(evidence, before)
    return weight if reads else weight * _UNKNOWN * says(size)


def _weight_again(evidence: Evidence, weight: float, *, varied: bool) -> float:
    """Weight of an answer given before; less if it differs in an id, or is only like the other."""
    another = varied and evidence.fresh
    if another and evidence.outcome_size < 2 * _LINE:
        # An id or a time may be all that a line says.
        return min(weight, VALUES)
    # Where nobody knows that it only reads, another id may be that of another thing.
    known = evidence.seen and (evidence.effect is READ or not another)
    return weight if known else weight * _NEARLY


def _weight_of_short(evidence: Evidence, before: str) -> float:
    """Weight of an answer that is short, found nothing, or differs from the sample before it."""
    size = evidence.outcome_size
    weight = min(max(size / _LINE, _WORD), 1.0)
    if weight < 1.0 and before and before != evidence.sample:
        was, now = (_ITEM.sub("#", one) for one in (before, evidence.sample))
        if was == now and not _is_shuffled(before, evidence.sample):
            return 0.0
    brief = evidence.brief and weight < 1.0 and not evidence.rejects
    # Of items that are not there another detector tells.
    if brief or (evidence.item and evidence.nothing):
        return 0.0
    well = not (evidence.failing or evidence.rejects)
    return min(weight, ITEM) if evidence.item and well else weight


def _is_shuffled(before: str, sample: str) -> bool:
    """True if words of a value are asked for again, in another place of it: no other item."""
    values = zip(_ITEM.findall(before), _ITEM.findall(sample), strict=False)
    pairs = ((_WORDS.findall(was), _WORDS.findall(now)) for was, now in values)
    return any(
        word in was and was[place : place + 1] != [word]
        for was, now in pairs
        for place, word in enumerate(now)
    )


_STAYS: Final = 8
"""Known pages in a row before a report: people go back and forth a few times until they know their
way."""
_RETURNS: Final = 3
"""Reverts of a file before a report: one or two are how people try things out."""
_STATES: Final = 16
"""States that are remembered: as long a way round as the longest cycle."""
_AGAIN_READ: Final = 0.4
"""Weight of a file that is read again, so that it takes eight: who has lost a context reads all
that were in it once more."""
_NEW_STATE: Final = 0.3
"""Share of the returns that a new state leaves: going back to a list after each of its items is
work."""


class BackToState(BaseDetector):
    """Does the run return to states that it was in before: a file, a page, a screen?

    Counts: changes of a file back to what it was; pages and screens shown before.
    Leaves alone: new states in between; looks after a rest; the same command after a change.
    Cannot see: screens not captured as text.
    """

    name = "back_to_state"
    signs = ("state",)
    __slots__ = ("_places",)

    def reset(self) -> None:
        self._places: dict[tuple[int, int | str], tuple[tuple[int, ...], float, int, int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        state, file = evidence.state, evidence.file
        # A page may change while one rests; a file that is changed back was not waited for.
        rested = evidence.rested if file is None else 0.0
        if state is None or evidence.failing or (evidence.waits and file is None):
            return None
        place = (evidence.agent, file if file is not None else evidence.tool)
        states, returns, last, epoch = self._places.get(place, ((), 0.0, -1, evidence.epoch))
        # What a command says after a change is about that, though it may say the same.
        if evidence.runs_code and file is None and epoch != evidence.epoch:
            states, returns = (), 0.0
        here = bool(states) and states[-1] == state
        if file is not None and here:
            return None
        known = state in states
        if not known:
            returns *= _NEW_STATE
        elif evidence.round != last:
            returns += (1.0 - rested) * (_AGAIN_READ if evidence.own else 1.0)
        if known:
            states = tuple(one for one in states if one != state)
        states = (*states, state)[-_STATES:]
        keep(self._places, place, (states, returns, evidence.round, evidence.epoch), 64)
        threshold = _STAYS if file is None else _RETURNS
        if not known or not reaches(returns, evidence.needs(threshold)):
            return None
        rule = "state_seen_before" if file is None else "state_seen_before.file"
        key = file if file is not None else key_of(f"{place} shown".encode())
        return self.found(rule, returns, threshold, key, evidence)


class FoundNothing(CountingDetector):
    """Do new questions find nothing, or return no more than they said?

    Counts: different calls of an agent that found nothing; questions and programs that give back
    their own text.
    Leaves alone: lookups of missing items count less. A find takes three tenths, a successful
    change all.
    Cannot see: "nothing" in words that nobody knows.
    """

    name = "found_nothing"
    signs = ("nothing", "echo")
    lasting = True
    counting = FOREVER
    __slots__ = ()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.outcome is None or evidence.waits:
            return None
        agent, writes = evidence.agent, evidence.effect is WRITE
        # A thought, a plan or a note is given back by who keeps it; a word that is looked up is the
        # headline of what is said about it.
        reads = evidence.effect is READ and (evidence.novelty or 0.0) < _NEWS
        asks = not writes if evidence.runs_code else reads
        echo = evidence.echo and asks and evidence.outcome_size >= _ECHO
        nothing = evidence.nothing and evidence.fresh
        if evidence.error or not (echo or nothing):
            if writes and not evidence.error:
                self._counts.scale(lambda _key, _one: 0.0)
            elif not (evidence.nothing or evidence.seen):
                self._counts.scale(lambda key, _: _OTHER if key == agent else 1.0)
            return None
        threshold = self._settings.tuning.calls.nothing_threshold
        weight = ITEM if evidence.item else _PLACE if evidence.place is not None else 1.0
        weight = threshold / _ECHOES if echo else weight
        counted = self._counts.add(agent, self._counts.get(agent), evidence, weight)
        if counted is None or not reaches(counted.count, evidence.needs(threshold)):
            return None
        rule, key = "echo" if echo else "found_nothing", key_of(self.name.encode())
        return self.found(rule, counted.count, threshold, key, evidence, times=counted.times)


_ECHO: Final = 40
"""Characters from which an answer that was in the question is an echo: a shorter one may well be
the value that was asked for."""
_NEWS: Final = 0.5
"""New share of an answer from which it says more than the question."""
_ECHOES: Final = 3.0
"""Programs in a row that print their own text before a report: two may be remarks."""
_PLACE: Final = 0.5
"""Weight of an empty page: that is how the end of a list is found."""

_NOTHING_NEW: Final = key_of(b"nothing_new")
_LAST: Final = 12
"""Rounds that are looked back at: with twice as many a third of the stuck runs are found."""
_SHARE: Final = 0.75
"""Share of them that told nothing new. Of 1,112 healthy runs it tells nine of which nothing else
tells; of 639 stuck ones ten, and 41 sooner than anything else."""
_SEVERAL: Final = 3
"""Different calls among them: of fewer other detectors tell."""
_KNOWN: Final = 0.05
"""New share of an answer up to which it is known: a number or a receipt in a page."""


class NothingNew(BaseDetector):
    """Were most of the newest calls made before, and told nothing new?

    Counts: of the last 12 rounds of an agent those in which each call was made before and its
    answer had no new words; nine are reported, the newest among them.
    Leaves alone: waits and rests; what a user asks for once more; files read again.
    Cannot see: arguments or answers not captured; calls or answers always worded differently.
    """

    name = "nothing_new"
    __slots__ = ("_agents",)

    def reset(self) -> None:
        # Of each agent the last round, and of the newest ones a call, and 1 if it told nothing new.
        self._agents: dict[int, tuple[deque[tuple[int, float]], int]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        call = evidence.call
        if evidence.waits or evidence.novelty is None or call is None:
            return None
        before = self._agents.get(evidence.agent)
        newest, last = before or (deque[tuple[int, float]](maxlen=_LAST), -1)
        known = 0.0
        # A number or an id may be all that a line says, unless that line was told before.
        line = evidence.changed and not evidence.seen and evidence.outcome_size < 2 * _LINE
        again = not (evidence.fresh or evidence.anew or evidence.own or line)
        if again and evidence.novelty <= _KNOWN:
            known = 1.0 - evidence.rested
        if evidence.round == last:
            # Of one round the answer that brought the most counts.
            known = min(known, newest.pop()[1])
        newest.append((call, known))
        keep(self._agents, evidence.agent, (newest, evidence.round), 32)
        count, threshold = sum(known for _, known in newest), _SHARE * _LAST
        if not known or count < threshold or len({call for call, _ in newest}) < _SEVERAL:
            return None
        return self.found("nothing_new", count, threshold, _NOTHING_NEW, last=len(newest))


_IDLE_COMMAND: Final = key_of(b"idle_command")
_IDLE: Final = 4
"""Commands that do nothing before a report: one or two are slips, three may be notes."""


class IdleCommand(CountingDetector):
    """Does a shell get commands that do nothing: `:`, a comment, a bare `echo`?

    Counts: rounds with such a command, whatever it says; for a hint, edits that replace a text by
    itself.
    Leaves alone: notes beside at least as much work.
    Cannot see: programs that do nothing.
    """

    name = "idle_command"
    signs = ("idle",)
    counting: ClassVar = {"earlier": 1.0}
    __slots__ = ("_first",)

    def user_turn(self) -> None:
        self.reset()

    def observe(self, evidence: Evidence) -> Detection | None:
        counted = self._counts.add(_IDLE_COMMAND, self._counts.get(_IDLE_COMMAND), evidence)
        if counted is None:
            self._first = evidence.number
            return None
        if not reaches(counted.count, evidence.needs(_IDLE)):
            return None
        share = counted.times / max(evidence.number - self._first + 1, 1)
        keys = frozenset((*counted.calls, _IDLE_COMMAND))
        # Half of it work, half of it remarks: who writes notes is not stuck.
        weight = min(max(4 * share - 2, 0.0), 1.0)
        if evidence.file is not None:
            # A list of names may be the same in two languages.
            return self.found(
                "does_nothing.edit", counted.count, _IDLE, keys, tool=evidence.tool,
                times=counted.times,
            )  # fmt: skip
        return self.found(
            "does_nothing", counted.count, _IDLE, keys, tool=evidence.tool, times=counted.times,
            max_action=Action.ABORT, weight=weight,
        )  # fmt: skip


_NO_BETTER_SCORE: Final = key_of(b"no_better_score")
_NO_BETTER: Final = 6
"""Tries without a better number before each report: a chosen value."""


class NoBetterScore(BaseDetector):
    """Has a measured number become no better in many tries?

    Counts: tries since a number of one name was lower or higher than ever.
    Leaves alone: everything: a plateau may be the best there is, so it is only recorded.
    Cannot see: which way is better.
    """

    name = "no_better_score"
    signs = ("score",)
    max_action = Action.ALLOW
    __slots__ = ("_scores",)

    def reset(self) -> None:
        self._scores = BestScores()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.score is None:
            return None
        counted = self._scores.add(evidence)
        if counted is None or counted[0] == 0 or counted[0] % _NO_BETTER:
            return None
        keys = evidence.score[0] ^ _NO_BETTER_SCORE
        return self.found(
            "no_better_score", counted[0], _NO_BETTER, keys, tool=evidence.tool, own=Action.ALLOW
        )


_ALIKE: Final = 60.0
"""Percent that two commands have in common if they try the same: another test of the suite, the
same program with another flag."""


class RepeatedEdit(BaseDetector):
    """Is one file edited over and over, while what is tried in between fails?

    Counts: edits of a file between which a test, a build or a program failed.
    Leaves alone: parts written one after another; everything, once it passes or a number is better
    than ever.
    Cannot see: edits by commands of a shell.
    """

    name = "repeated_edit"
    signs = ("file", "failing", "rejects", "score")
    lasting = True
    __slots__ = ("_edited", "_failed", "_last_failed", "_scores")

    def reset(self) -> None:
        # Of each file how often it was edited, and when last; what failed: tool, call and sample.
        self._edited: dict[int, tuple[int, int]] = {}
        self._failed: list[tuple[str, int | None, str]] = []
        self._scores = BestScores()
        self._last_failed = -1

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.file is None:
            self._try(evidence)
            return None
        if evidence.failing:
            return None
        edits, last = self._edited.get(evidence.file, (1, evidence.number))
        again = self._last_failed > last
        edits += again
        keep(self._edited, evidence.file, (edits, evidence.number), 64)
        threshold = self._settings.tuning.calls.edit_threshold
        if not again or edits * self._settings.sensitivity < threshold:
            return None
        return self.found("no_green_result", edits, threshold, evidence.file)

    def _try(self, evidence: Evidence) -> None:
        """Keeps what failed; what passes now, or measures better than ever, begins again."""
        measured = self._scores.add(evidence)
        if measured is not None and measured[1]:
            self._edited.clear()
        if not evidence.failing and not evidence.rejects:
            if any(_is_same(evidence, *failed) for failed in self._failed):
                self.reset()
        elif (
            # Wrong usage is no try, and neither is a transient error.
            not evidence.refused
            and (evidence.runs_code or evidence.rejects)
            and evidence.error_class is not TRANSIENT
        ):
            tried = evidence.tool, evidence.call, evidence.sample
            self._failed = [*self._failed[-15:], tried]
            self._last_failed = evidence.number


def _is_same(evidence: Evidence, tool: str, call: int | None, sample: str) -> bool:
    """True if a call tries what failed; a call without known arguments is assumed to."""
    if tool != evidence.tool or call is None or call == evidence.call or not sample:
        return tool == evidence.tool
    return fuzz.ratio(sample, evidence.sample, score_cutoff=_ALIKE) > 0


_SAID: Final = 12
"""Characters from which a verdict is one: below, words coincide."""
_AGAIN: Final = 0.5
"""Weight of the same try without a change in between, which `exact_repeat` counts in full, and of
another question: it may be about another thing."""
_ANOTHER: Final = 0.2
"""New share of a failure that makes it another one: builds that fail at one error after another
have 0.13 to 0.35 of it, stuck ones 0 to 0.12."""
_STEER: Final = 4 / 3
"""Factor of the threshold for a steer: eight failures instead of the six for a hint."""
_KEPT: Final = 64
"""Lines that were steered away from, and calls that failed, that are remembered, the newest."""
_BY_TURNS: Final = 8
"""Errors of one call that may come back by turns: in `scenarios` none after the seventh does."""
_TRIES: Final = 20
"""Tries without a change in between before a refusal: a chosen value; one recorded run made 278."""


class SameVerdict(CountingDetector):
    """Does it fail in the same words, whatever is tried or changed?

    Counts: failures of one tool with the same line, numbers included, the same text below and the
    same errors above; errors of a call that come back; equal answers that turn down what was tried.
    Changes in between do not matter; a pass takes three tenths.
    Leaves alone: transient errors; items that do not exist; better numbers; a rest before the same
    call. Verdicts about one thing after another are only hinted at. A test that fails between edits
    is asked for another way at most, unless something else in it is new.
    Cannot see: verdicts in unknown words.
    """

    name = "same_verdict"
    signs = ("failure", "rejects")
    lasting = True
    # After 200 calls such a line is forgotten: longer work has been about other things.
    counting: ClassVar = {"fade": ACROSS, "earlier": 1.0, "window": 200}
    __slots__ = ("_lines", "_scores", "_steered")

    def reset(self) -> None:
        super().reset()
        self._scores = BestScores()
        self._steered: dict[int, bool] = {}
        # The lines that a call of an agent failed with since the user spoke, the oldest first.
        self._lines: dict[tuple[int, int | None], tuple[int, ...]] = {}

    def user_turn(self) -> None:
        super().user_turn()
        self._lines.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        verdict, line = evidence.outcome, evidence.failure
        if evidence.waits or evidence.error_class is TRANSIENT or self._passes(evidence):
            return None
        measured = self._scores.add(evidence)
        better = measured is not None and measured[1]
        # Of a tool that does not run code only the same call counts: fifty items that are not
        # found are no build that fails.
        fails = line is not None and evidence.failing and (evidence.runs_code or not evidence.fresh)
        rejects = evidence.rejects and not evidence.error and verdict is not None
        # A code alone says nothing of other calls; of the same one it says that it failed again.
        same = evidence.failing and not evidence.fresh
        line = self._first_line(evidence) if fails else line
        if not same and evidence.outcome_size < (_SAID if rejects else 2 * _SAID):
            return None
        # A call that fails for its own item is told by all of its answer.
        key = line if fails or (rejects and not evidence.failing) else verdict if rejects else None
        if key is None:
            return None
        place = (evidence.agent, evidence.tool, key)
        if better:
            self._counts.forget(place)
        last = self._counts.get(place)
        changed = last is not None and evidence.epoch != last.epoch
        # What only reads says of one thing after the other what it finds.
        reads = rejects and evidence.fresh and evidence.effect is READ and not evidence.runs_code
        again = not (fails or changed or evidence.fresh)
        weight = _AGAIN if last is not None and (again or reads) else 1.0
        if fails and not changed:
            # Who comes back to it after a rest waits for something that others do.
            weight *= 1.0 - evidence.rested
        equal, alike = verdict, 1.0
        if last is not None:
            # Of failures that share a line the whole answers may differ, and tell another error.
            before, alike = last.mark
            equal = verdict if before == verdict else None
            alike += max(1.0 - (evidence.novelty or 0.0) / _ANOTHER, 0.0)
        counted = self._counts.add(place, last, evidence, weight, equal, alike)
        threshold = self._settings.tuning.calls.verdict_threshold
        needed = evidence.needs(threshold)
        if counted is None or not reaches(counted.count, needed):
            return None
        said = {"what": "failed" if evidence.failing else "rejected what was tried"}
        if not rejects or equal is None:
            # The successes in between would take every confirmation back: this is on no ladder.
            further = reaches(min(counted.count, alike), needed * _STEER)
            steers = further and not self._steered.get(key, False)
            keep(self._steered, key, further, _KEPT)
            rule = "same_failure" if line == evidence.failure else "same_failure.known"
            return self.found(
                rule, counted.count, threshold, key, evidence, times=counted.times,
                max_action=Action.STEER if steers else Action.HINT,
                own=Action.STEER if steers else None, **said,
            )  # fmt: skip
        tries = evidence.needs(_TRIES) - needed
        # A verdict about one thing after another turns down no try.
        others = evidence.call is None or reads or (evidence.item and not evidence.runs_code)
        identity = 0.0 if changed or others else 1.0 / max(tries, 1.0)
        return self.found(
            "same_verdict", counted.count, threshold, key, evidence, times=counted.times,
            max_action=Action.ABORT, weight=identity * evidence.stop_weight, **said,
        )  # fmt: skip

    def _first_line(self, evidence: Evidence) -> int | None:
        """The line of a failure; of one that came back, with nothing new, the first of its call.

        What fails with two errors by turns fails as often as both.
        """
        own, line = (evidence.agent, evidence.call), evidence.failure
        if line is None or evidence.call is None:
            return line
        lines = self._lines.get(own, ())
        if line in lines:
            return lines[0] if evidence.novelty == 0 else line
        keep(self._lines, own, (*lines, line)[:_BY_TURNS], _KEPT)
        return line

    def _passes(self, evidence: Evidence) -> bool:
        """True if a call turned nothing down, which lessens the counts: such a tool is no wall."""
        if evidence.failing or evidence.rejects:
            return False
        if self._counts.repeated:
            own, call = (evidence.agent, evidence.tool), evidence.call
            # What runs code passes at something else; if the same passes, it does not always fail.
            other = evidence.fresh and not evidence.runs_code
            self._counts.scale(
                lambda key, one: _OTHER if key[:2] == own and (other or call in one.calls) else 1.0
            )
        return True


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
    """Is a range paged through that was read before?

    Counts: after a step back, places that were read, or that lie between two that were.
    Leaves alone: what changed in between.
    Cannot see: cursors that are no numbers.
    """

    name = "sweep"
    signs = ("place",)
    __slots__ = ("_ranges",)

    def reset(self) -> None:
        self._ranges: dict[int, _Range] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        # A page that did not come was not read.
        if evidence.place is None or evidence.waits or evidence.failing or evidence.effect is WRITE:
            return None
        key, place = evidence.place
        read = self._ranges.get(key)
        if read is None or read.epoch != evidence.epoch:
            read = _Range(evidence.epoch)
        keep(self._ranges, key, read, 16)
        threshold = self._settings.tuning.calls.sweep_threshold
        if not read.add(place, evidence.round) or read.again < evidence.needs(threshold):
            return None
        return self.found("read_again", read.again, threshold, key, evidence)


_REVISIONS: Final = 6
"""Revisions in a row that hardly change the text before a report: careful writers make three."""


class RevisedInVain(CountingDetector):
    """Does a draft go in and come out again, with hardly a word changed?

    Counts: calls of one tool whose arguments and answer are nearly its last ones.
    Leaves alone: a call that fails or waits ends the row.
    Cannot see: texts below 200 characters.
    """

    name = "revised_in_vain"
    signs = ("revises",)
    lasting = True
    counting = FOREVER
    __slots__ = ()

    def user_turn(self) -> None:
        self.reset()

    def observe(self, evidence: Evidence) -> Detection | None:
        key = (evidence.agent, evidence.tool)
        if not evidence.revises or evidence.failing or evidence.waits:
            self._counts.forget(key)
            return None
        counted = self._counts.add(key, self._counts.get(key), evidence)
        if counted is None or counted.count < evidence.needs(_REVISIONS):
            return None
        name = f"{evidence.agent} {evidence.tool} revised"
        keys, times = key_of(name.encode("utf-8", "surrogatepass")), counted.times
        return self.found("revised_in_vain", counted.count, _REVISIONS, keys, evidence, times=times)
