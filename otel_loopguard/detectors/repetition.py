"""Finds the same calls made again, in one order or another, without anything new."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action
from otel_loopguard.detectors.base import (
    GUESSED,
    MASKED,
    READ,
    VALUES,
    BaseDetector,
    Count,
    CountingDetector,
    Counts,
    Periods,
    answer_of,
    critical_if,
    reaches,
    surer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.core import Detection
    from otel_loopguard.core.evidence import Evidence

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 10.0, 60.0
"""Seconds that a hint may tell to wait: below them the looks cost more than the wait, and above
them a job that is done would wait for its agent."""
_DIGITS: Final = 8
"""Equal calls whose answers are equal but for digits: a counter, a clock or a price is looked at a
few times, and a progress bar is known by its direction."""

_LONGER: Final = 2
"""Times as long as the longest wait that ended well another one may take: what a tool waits for
seldom takes twice as long as ever."""
_TOOLS: Final = 16
"""Tools whose longest wait is kept: few have any."""
_LOOKS: Final = 3
"""Looks that one rest is for: who waits may look twice more before the next one."""
_TURNS: Final = 6
"""Turns of a program that runs its agent once per step: people ask the same three or four times."""


class ExactRepeat(CountingDetector):
    """Is the same call made again, with the same answer, while nothing changed?

    Counts: equal calls with an equal outcome in one epoch, each by its weight; answers whose digits
    go neither up nor down; one call in six turns with hardly a pause.
    Leaves alone: another answer; three looks after each rest; parallel calls; waits of up to twice
    the longest that ended well.
    Cannot see: calls whose arguments are not captured.
    """

    name = "exact_repeat"
    __slots__ = ("_digits", "_turn", "_turns", "_waits")

    def reset(self) -> None:
        # Most calls never come again.
        self._counts, self._turns = Counts(rare=True), Counts(fade=1.0, rare=True)
        self._digits = Counts()
        self._turn = 0
        # By tool, the longest wait in seconds that ended well.
        self._waits: dict[str, float] = {}

    def user_turn(self) -> None:
        self._counts.halve()
        self._digits.halve()
        self._turn += 1

    def observe(self, evidence: Evidence) -> Detection | None:
        call = evidence.call
        if call is None:
            return None
        weight, identity, masked, varied, rests = 1.0, 1.0, "", False, 0.0
        # Who gives a failed look time, whatever it says, waits for what is not ready.
        waiting = evidence.pending or evidence.transient or (evidence.failing and evidence.waits)
        last = self._counts.get(call)
        if last is not None:
            known, exact, outcome, waited, rested = last.mark
            if known != evidence.outcome or last.epoch != evidence.epoch:
                if waited and not (waiting or evidence.failing):
                    longest = max(self._waits.get(evidence.tool, 0.0), _elapsed(last, evidence))
                    keep(self._waits, evidence.tool, longest, _TOOLS)
                self._counts.forget(call)
                last = None
            else:
                # A rest beside other work may have been for that.
                rests = rested + evidence.rested * (evidence.number == last.number + 1)
                alike, identity = _identity(evidence, exact, outcome, last.times)
                weight = alike * evidence.hint_weight
                varied = outcome != evidence.outcome_exact
                masked = ".varied" if varied else ""
                masked = ".masked" if exact != evidence.call_exact else masked
        mark = evidence.outcome, evidence.call_exact, evidence.outcome_exact, waiting, rests
        counted = self._counts.add(call, last, evidence, weight, *mark)
        if counted is not None:
            own = self._settings.of(evidence.tool)
            budget = own.transient_budget_s if evidence.transient else own.wait_budget_s
            budget = max(budget, _LONGER * self._waits.get(evidence.tool, 0.0))
            if waiting and _elapsed(counted, evidence) > budget:
                return self._waited(counted, evidence, budget, varied)
            if reaches(counted.count, evidence.needs(own.repeat_threshold)):
                return self._repeated(counted, evidence, own.repeat_threshold, identity, masked)
        return self._over_turns(evidence) or self._in_digits(evidence)

    def _over_turns(self, evidence: Evidence) -> Detection | None:
        """Detects the same call with the same answer in each turn, with hardly a pause."""
        key = hash((evidence.call, evidence.outcome))
        last = self._turns.get(key)
        if evidence.outcome is None or (last is not None and last.mark == (self._turn,)):
            return None
        counted = self._turns.add(key, last, evidence, 1.0 - evidence.rested, self._turn)
        # Each turn begins a ladder of its own: it is said in every sixth.
        if (
            counted is None
            or counted.times % _TURNS
            or not reaches(counted.count, evidence.needs(_TURNS))
        ):
            return None
        return self.found(
            "each_turn", counted.count, _TURNS, evidence.call or 0, evidence, times=counted.times
        )

    def _in_digits(self, evidence: Evidence) -> Detection | None:
        """An answer in which only digits differ from those before, and that goes nowhere."""
        said = evidence.numbers
        if said is None or evidence.waits:
            return None
        # What fails is not mended by a change that leaves it as it was.
        wrong = evidence.failing or evidence.rejects
        key = (evidence.call, said.around, None if wrong else evidence.epoch)
        last = self._digits.get(key)
        if last is None or len(last.mark) != len(said.values):
            moves = tuple(map(_Move, said.values))
        else:
            moves = tuple(map(_Move.to, last.mark, said.values))
        weight = 1.0 - evidence.rested
        counted = self._digits.add(key, last, evidence, weight, *moves, changes=not wrong)
        # Not by how well repeats of the tool pay off: that each brings another answer is the sign.
        if counted is None or not reaches(
            (counted.count + 1) * self._settings.sensitivity, _DIGITS
        ):
            return None
        # A number that goes one way is progress, and so is one that turned once.
        turns = [one.turns for one in moves if one.up is not None]
        if not turns or 3 * min(turns) < counted.times:
            return None
        # A loop of its own: that of the call ends with each new answer, and would be told anew.
        return self.found(
            "equal_but_for_digits", counted.count + 1, _DIGITS, said.around ^ (evidence.call or 0),
            confidence=0.6, tool=evidence.tool, times=counted.times + 1, max_action=Action.HINT,
        )  # fmt: skip

    def _repeated(
        self, counted: Count, evidence: Evidence, threshold: float, identity: float, masked: str
    ) -> Detection:
        if evidence.outcome is None:
            rule = "identical_call_unseen_outcome"
        elif evidence.pending:
            rule = "polled_too_soon"
        else:
            rule = f"identical_call{masked}"
        # Who rests before each few looks waits for what is asked, however hasty those looks are.
        rested = _LOOKS < counted.times <= _LOOKS * (counted.mark[-1] + 1)
        waits = evidence.pending or (rested and not (evidence.failing or evidence.rejects))
        wait = max(_SHORTEST_WAIT_S, _elapsed(counted, evidence) / 3)
        return self.found(
            rule, counted.count, threshold, evidence.call or 0, evidence, times=counted.times,
            severity=critical_if(counted.count >= threshold + 2),
            wait=round(min(wait, _LONGEST_WAIT_S)),
            max_action=Action.HINT if waits else Action.ABORT,
            weight=identity * evidence.stop_weight,
        )  # fmt: skip

    def _waited(self, counted: Count, evidence: Evidence, budget: float, varied: bool) -> Detection:
        seconds = _elapsed(counted, evidence)
        minutes = round(seconds / 60)
        return self.found(
            "waited_long.varied" if varied else "waited_long", seconds, budget,
            evidence.call or 0, confidence=0.6,
            max_action=Action.ASK, tool=evidence.tool, answer=answer_of(evidence),
            times=counted.times, waited="1 minute" if minutes == 1 else f"{minutes} minutes",
        )  # fmt: skip


class _Move(NamedTuple):
    """A number in an answer: whether it rose when it moved last, and how often it turned."""

    number: float
    up: bool | None = None
    turns: int = 0

    def to(self, number: float) -> _Move:
        """It in the next answer."""
        if number == self.number:
            return self
        up = number > self.number
        return _Move(number, up, self.turns + (self.up is not None and up is not self.up))


def _identity(
    evidence: Evidence, call: int | None, outcome: int | None, times: int
) -> tuple[float, float]:
    """Similarity of a call and its outcome to the last ones, for a hint and for a stop."""
    if outcome != evidence.outcome_exact:
        return MASKED, surer(VALUES, times)
    if call == evidence.call_exact:
        return 1.0, 1.0
    return MASKED, surer(GUESSED if evidence.guessed else MASKED, times)


def _elapsed(counted: Count, evidence: Evidence) -> float:
    """Seconds since the first call of the row; 0 without times."""
    return (evidence.time - counted.since) / 1e9 if counted.since else 0.0


_AGAIN: Final = key_of(b"made_again")
_MADE: Final = 64
"""Calls that are remembered: more than one request has made."""
_TWICE: Final = 2
"""Things that are sent or ordered twice are one too many."""
_SHOWN: Final = 120
"""Characters from which an answer shows something; a shorter one is a receipt, with a new id."""
_NEWS: Final = 0.3
"""New share of an answer that is another page."""
_MAY_BE: Final = -1
"""Epoch before a call that gave no answer: it may have been done, whatever else changed."""
_STARTS: Final = 4
"""Starts of what is under way by then, each time under another name: the second may replace one
that hangs, and the third be a last try."""


def again_key(call: int) -> int:
    """Key of a call that is done again, apart from its own: a new answer ends a loop of calls."""
    return call ^ _AGAIN


class MadeAgain(BaseDetector):
    """Is something done again that succeeded before: sent, ordered, created, started?

    Counts: equal calls that succeeded, or may have, and make something; the fourth start of what
    still runs. A new id in the answer is no news, nor is one that marks the request.
    Leaves alone: what a user asks for again, or one message several times; what shows another page;
    what is done again after a new act, or after another call got another answer than before.
    Cannot see: tools of unknown names, unless `once_tools` declares them. Then the third equal call
    is refused, but under another request id only hinted at, as it may be meant.
    """

    name = "made_again"
    signs = ("makes", "variant", "changed")
    lasting = True
    __slots__ = ("_made", "_moved")

    def reset(self) -> None:
        self._made: dict[int, tuple[float, int, int, int]] = {}
        self._moved = 0

    def observe(self, evidence: Evidence) -> Detection | None:
        call, deed = evidence.call_exact, evidence.deed
        if call is None:
            return None
        once = evidence.tool in self._settings.once
        if once and deed is None and not evidence.guessed:
            # Why or when it is asked makes it no other deed.
            call = evidence.call or call
        calls = (call, deed) if once or deed is None else (deed,)
        if evidence.failing:
            return self._unanswered(calls, evidence)
        # To look into a file starts nothing.
        starts = evidence.variant and evidence.pending and not evidence.own
        if not evidence.makes and not starts:
            self._moved += evidence.changed or (evidence.fresh and evidence.effect is not READ)
            return None
        found: Detection | None = None
        for one in dict.fromkeys(calls):
            if one is not None:
                said = self._again(one, evidence, once=once, marked=one == deed, starts=starts)
                found = found or said
        return found

    def _again(
        self, call: int, evidence: Evidence, *, once: bool, marked: bool, starts: bool
    ) -> Detection | None:
        """Counts a call under a key; with a deny only where that is declared."""
        # What was changed since is tried anew: a test after each edit.
        now = self._moved if evidence.makes else evidence.epoch
        if once:
            now = 0
        known = (float(not evidence.makes), 0, -1, _MAY_BE)
        count, calls, last, before = self._made.get(call, known)
        shows = evidence.makes and not once and _shows(evidence)
        if before not in (now, _MAY_BE) or shows:
            count = 0.0
        if evidence.round != last:
            # What is started again under another name was not waited for, however long it took.
            count += 1.0 if starts or once else 1.0 - evidence.rested
            calls += 1
        keep(self._made, call, (count, calls, evidence.round, now), _MADE)
        threshold = _TWICE if evidence.makes else _STARTS
        # Not by how well repeats of the tool pay off: that each brings another answer is the sign.
        if evidence.round == last or not reaches(count * self._settings.sensitivity, threshold):
            return None
        # Under an id of its own, or beyond a cut, it may be meant, so that nothing is refused.
        denies = once and not (marked or evidence.args_cut)
        key = call if denies and evidence.guessed else evidence.call or call
        rule = "done_before.marked" if marked else "done_before"
        return self.found(
            rule if evidence.makes else "started_again", count, threshold,
            again_key(key), evidence, times=calls + (not evidence.makes),
            max_action=Action.DENY if denies else Action.HINT,
            # The next one would be the third.
            own=Action.DENY if denies else None,
        )  # fmt: skip

    def _unanswered(self, calls: tuple[int | None, ...], evidence: Evidence) -> Detection | None:
        """Handles a call that makes something, if it is not known whether it did."""
        if not (evidence.makes and evidence.unanswered):
            return None
        # What may have been done counts as done, so that the next success is the second.
        for call in calls:
            if call is not None:
                keep(self._made, call, (1.0, 1, evidence.round, _MAY_BE), _MADE)
        key = again_key(evidence.call or 0)
        return self.found("may_be_done", 1, 1, key, confidence=0.6, tool=evidence.tool)


def _shows(evidence: Evidence) -> bool:
    """True if an answer shows another page than before: what was sent are keys, or a command."""
    news = evidence.changed and evidence.novelty is not None and evidence.novelty > _NEWS
    return news and evidence.outcome_size >= _SHOWN


class _Question(NamedTuple):
    """A question of a tool, and whether neither it nor its answer has anything new.

    Of one that may be about another thing the epoch is -1: it is like no other.
    """

    terms: frozenset[str]
    sample: str
    epoch: int
    round: int
    vain: bool


class SimilarRepeat(BaseDetector):
    """Is one thing asked for again and again, in other words?

    Counts: questions of one search tool that share content words with its last six: 40 %, or up to
    85 % where answers bring news; questions of any tool in which neither a word nor the answer is
    new.
    Leaves alone: fewer than four content words; commands; paging; what changed in between.
    Cannot see: questions that share no word.
    """

    name = "similar_repeat"
    signs = ("terms",)
    max_action = Action.STEER
    __slots__ = ("_asked",)

    def reset(self) -> None:
        self._asked: dict[tuple[int, str], list[_Question]] = {}

    def observe(self, evidence: Evidence) -> Detection | None:
        terms, news, epoch = evidence.terms, evidence.novelty, evidence.epoch
        if news is None or evidence.waits or evidence.error or evidence.anew:
            return None
        if evidence.place is not None or len(evidence.sample) >= _QUESTION:
            return None
        # Of a tool that nobody knows a page is an answer, and a word may be a receipt.
        reads = evidence.effect is READ or evidence.outcome_size >= _PAGE
        if not reads or evidence.item or not evidence.fresh:
            epoch = -1
        place = (evidence.agent, evidence.tool)
        asked = self._asked.get(place, [])
        vain = _is_in_vain(evidence, asked, reads=reads)
        share = _IN_VAIN + (_NEW - _IN_VAIN) * news
        others = {
            one.round
            for one in asked
            if (vain and one.vain) or (one.epoch == epoch >= 0 and _alike(one.terms, terms, share))
        } - {evidence.round}
        alike = 1 + len(others)
        question = _Question(terms, evidence.sample, epoch, evidence.round, vain)
        keep(self._asked, place, [*asked[1 - _ASKED :], question], 16)
        threshold = self._settings.of(evidence.tool).similar_threshold
        if alike < evidence.needs(threshold):
            return None
        keys = key_of(f"{self.name}\0{evidence.tool}".encode("utf-8", "surrogatepass"))
        # What nobody knows to be a search may name one thing after the other.
        most = Action.STEER if evidence.effect is READ and epoch >= 0 else Action.HINT
        return self.found("similar_call", alike, threshold, keys, evidence, max_action=most)


_ASKED: Final = 6
"""Newest questions among which similar ones count; an agent that asks again later has looked
elsewhere."""
_IN_VAIN, _NEW = 0.4, 0.85
"""Share of their words that is common to two questions for the same where the answer brought
nothing new, and where all of it is; with two thirds of it new it is seven tenths."""
_HARDLY: Final = 0.1
"""New share of an answer that brings nothing: scores and ranks of what is known."""
_PAGE: Final = 200
"""Characters from which an answer of a tool of unknown effect is one."""
_QUESTION: Final = 256
"""Characters of arguments from which they are no question, but a draft or a program."""
_WORDS: Final = 4
"""Words from which that says something: two of three may be the name of what is looked for."""
_SENTENCE: Final = 6
"""Content words of what is said to a tool that only gives receipts: the moves of a game and the
states of a lamp are told in fewer, and are few."""
_ALL_WORDS: Final = re.compile(r"\w+")


def _is_in_vain(evidence: Evidence, asked: Iterable[_Question], *, reads: bool) -> bool:
    """True if neither a question nor its answer has anything new, beside the last six questions.

    A number or a name that was not said before is another item. The very same question with the
    very same answer is told of elsewhere.
    """
    if not (evidence.fresh or evidence.changed):
        return False
    hardly = evidence.novelty is not None and evidence.novelty <= _HARDLY
    if not (hardly if reads else evidence.seen and len(evidence.terms) >= _SENTENCE):
        return False
    said = _said(evidence.sample)
    new = said.difference(*(_said(one.sample) for one in asked))
    if any(isinstance(one, str) for one in new):
        return False
    # Texts about many things have words in common, and hardly a phrase.
    return reads or 3 * len(new) <= len(said)


def _said(sample: str) -> set[object]:
    """The words of a question, and each two that stand side by side."""
    words = _ALL_WORDS.findall(sample.lower())
    return {*words, *pairwise(words)}


def _alike(one: frozenset[str], other: frozenset[str], share: float) -> bool:
    """True if two questions share so many words, or one has all those of the other."""
    least, most = sorted((len(one), len(other)))
    common = len(one & other)
    return least >= _WORDS and (common == least or common >= share * (least + most - common))


_UNKNOWN: Final = (0, 0.0, 0.0)
_TELLING: Final = 0.9
"""Mean weight of a cycle's calls with which it is found after its usual number of turns, and with
less weight later: the answers of one call in ten may be single words."""


@lru_cache(maxsize=16)
def _cycle_needs(longest: int, repeats: float) -> tuple[int, ...]:
    """Length that each period must run; a cycle of one call is left to `exact_repeat`."""
    less = [1.0 if period >= 9 else 0.5 if period >= 4 else 0.0 for period in range(longest + 1)]
    needs = [max(round((repeats - less[at] - 1) * at), at) for at in range(2, longest + 1)]
    return (0, 0, *needs)


class Cycle(BaseDetector):
    """Do the same few calls go round, with equal outcomes, while nothing changed?

    Counts: turns of two calls or more, by what their calls weigh on average; long cycles a turn
    sooner.
    Leaves alone: waits; parallel duplicates.
    Cannot see: calls or outcomes not captured.
    """

    name = "cycle"
    max_action = Action.ABORT
    __slots__ = ("_last_round", "_need", "_periods")

    def reset(self) -> None:
        repeats = max(self._settings.tuning.calls.cycle_repeats / self._settings.sensitivity, 1.5)
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
        return self.found(
            "cycle", turns, round(threshold, 2), frozenset(keys), tool=evidence.tool,
            turns=int(turns), severity=critical_if(turns >= threshold + 1), period=period,
            weight=sum(stops) / period,
        )  # fmt: skip
