"""Weighs one more repeat of a call: a product of a few factors from 0 to 1, without cliffs.

A known word may accuse: the call failed, it found nothing, it reads what only the agent changes.
Unknown content weighs little, but never nothing, so a run in another language, or with other names
of tools, is judged later and not harder.

What a session adds to all its answers (token counts, costs, ids) is learned here, and taken off.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from dataclasses import replace
from itertools import islice
from math import exp
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.clock import was_set_back
from otel_loopguard._util.fields import is_map
from otel_loopguard.core.evidence import Effect, ErrorClass, says
from otel_loopguard.evidence.effects import command_of
from otel_loopguard.evidence.normalize import CALLS, key_of_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.core import Step
    from otel_loopguard.core.evidence import Evidence
    from otel_loopguard.evidence.outcomes import Reading

_READ, _WAIT, _UNKNOWN_EFFECT = Effect.READ, Effect.WAIT, Effect.UNKNOWN

_SLACK_S: Final = 1.0
"""Seconds between two calls that are the machine's own: a busy one is no reason to look again."""
_RESTS_S: Final = 2.4
"""Seconds of extra rest that leave a third of a weight; four of them leave a sixteenth. Agents do
not rest by chance: one that loops asks again as soon as its model has answered, so a look every
five seconds is a wait, whatever its answer says. A higher value stops waits for a file or a
message; a lower one lets slow loops pass."""
_WRONG_S: Final = 12.0
"""The same for a call that is itself wrong, which no rest mends: in half a minute its agent did
something else."""
_GIVEN: Final = 0.25
"""Share of the time of another call that is a rest: most of them work for it, and an agent whose
tools take eight seconds each is in no less of a hurry. Half a minute is a wait in any language."""
_SURE_S: Final = 1.0
"""The same towards a stop, for a rest beside a model whose calls are seen: none of that time is
thinking, and a looping agent does not rest. Three seconds are intended; two may be a busy
machine."""
_RESTED: Final = 0.95
"""Share of a rest (five seconds) from which another look is a wait; it then weighs so little that
this makes no visible step."""

_LONG, _PAGE, _TEXT = 100, 400, 250
"""Characters of an answer that is a full state; the same for a text in the arguments, of which at
most 256 are kept. A text of 100 may be a message or a button."""

# What an equal answer says towards a stop, which takes three and a few refusals:
_OWN: Final = 0.5
"""Least weight of reading the agent's own work: an agent that waits for a program also looks into
its folder."""
_UNKNOWN: Final = 0.05
"""A line from a call of unknown kind: sixty repeats are a loop in any language."""
_LOOKS: Final = 0.4
"""A line that was read: eight repeats. It may change by itself, so it weighs less than the agent's
own."""
_STATE: Final = 0.6
"""A page, whatever the call is: five repeats."""
_SAME_TEXT: Final = 0.15
"""A word, if the call had a text of its own (a thought, a file): ten repeats."""
_UNCLEAR: Final = 0.1
"""An unknown error, or one that a pause may mend: a dozen repeats are not yet a deny."""
_CUT: Final = 0.1
"""A cut answer may differ beyond the cut."""
_ACTED, _ACTED_IN_VAIN = 0.75, 0.5
"""Share of a stop that is taken off for calls in between that were made before and may act: a key
press may have moved something that is not visible. Less is taken off if all of them failed
again."""
# What it says towards a hint:
_UNSEEN: Final = 0.2
"""An answer that was not captured and may be anything: a hint at the eleventh, and nothing more."""
_SOFT: Final = 0.5
"""An error that a pause may mend counts half: it has a time budget of its own."""
_AMID: Final = 0.8
"""Share of a hint that is taken off for news in between: repeats beside real work get a hint,
later."""
_PATIENT: Final = 0.7
"""Share of a hint that is taken off for patience with another try of what came to nothing."""
_SCHEDULED_S: Final = 600.0
"""Seconds of rest from which on a schedule makes the next try: commands of coding agents, and so
their sleeps, end after ten minutes at most."""
_LEAST: Final = 0.5
"""The least that any captured answer says for a hint: five words "ok" in a row are a loop."""


def weigh(call: Evidence, since: Since) -> None:
    """Sets what a call weighs: its haste, and what it says for a hint and for a stop."""
    # Who was told that the call itself is wrong has not heard it, whatever else it does.
    told = call.refused or call.call_error
    explained = told or call.rejects or call.nothing
    accused = call.failing or explained or (call.empty and call.effect is _READ)
    # A failure that a pause may mend, for all that is known of it.
    of_nothing = call.error and call.error_class is ErrorClass.UNKNOWN
    unclear = call.transient or (of_nothing and not explained)
    firm = accused and not unclear
    rests_s = _WRONG_S if told else _RESTS_S
    pause = since.pause + since.took * call.pending
    # What works for a minute before it fails is no look at whether it can.
    works_s = since.took if call.failing and not call.transient else 0.0
    call.rested = rested = _rested(pause, max(rests_s, works_s))
    waits = call.effect is _WAIT
    looks = call.pending or (rested >= _RESTED and not (firm or call.transient))
    call.waits = waits or (looks and not call.fresh)
    # What takes a minute to say that it is not ready, in whatever words, has waited for one; a line
    # says more than that, and what is the agent's own does not wait.
    gave = 0.0 if firm or call.own else since.took * (1.0 - says(call.outcome_size))
    # A monitor with a look a minute is like a slow model, which may be hinted at, and not stopped.
    haste = 0.0 if waits else 1.0 - _rested(since.pause + since.unsure + gave, rests_s)
    if since.thought and not told:
        haste = min(haste, 1.0 - _rested(since.sure, _SURE_S))
    patient = _PATIENT if firm and not call.pending else 1.0
    if not told:
        patient = max(patient, _rested(since.pause, _SCHEDULED_S))
    if call.pending and since.thought > rests_s:
        # A look that costs more than the rest before it comes too soon, at whatever pace.
        rested = _rested(pause, since.thought)
    heard = 0.0 if waits and not firm else 1.0 - patient * rested
    news = min(since.news, 1.0)
    # What follows what acts, and did not fail, may be what it did.
    amid = _AMID if accused or call.effect is _READ else 1.0
    call.hint_weight = heard * (1.0 - amid * min(since.worth, 1.0))
    call.stop_weight = haste * (1.0 - news * (0.5 if told else 1.0))
    call.stop_weight *= 1.0 - since.acted * (_ACTED_IN_VAIN if accused else _ACTED)
    if call.outcome is None:
        call.hint_weight *= _UNSEEN
        call.stop_weight = 0.0
        return
    loud = accused or call.effect is _READ
    said = 1.0 if loud else max(min(call.outcome_size / _LONG, 1.0), _LEAST)
    call.hint_weight *= _SOFT if call.transient else said
    slow = _rested(since.thought - _THINKS_S + _SLACK_S, _RESTS_S)
    call.stop_weight *= _said(call, slow, firm=firm, unclear=unclear)
    call.stop_weight *= _CUT if call.cut else 1.0
    if call.args_cut and not (call.failing or call.rejects):
        call.stop_weight = 0.0  # JSON that the model itself did not end would be refused


def _rested(rest: float, rests_s: float) -> float:
    """Share of a full rest that a number of seconds is."""
    if rest <= _SLACK_S:
        return 0.0
    return 1.0 - exp(-(((rest - _SLACK_S) / rests_s) ** 2))


def _said(call: Evidence, slow: float, *, firm: bool, unclear: bool) -> float:
    """Weight of an equal answer: all of it if nothing came of the call.

    For other calls it depends on the length of the answer and of the question; `slow` is the share
    of a rest that the model gave before it.
    """
    if unclear or firm:
        return _UNCLEAR if unclear else 1.0
    if call.own:
        return max(_OWN, says(call.outcome_size))
    looks = call.effect is _READ and not call.runs_code
    # A line may change while a slow model thinks, though nobody meant to wait.
    line = max(_LOOKS * looks * (1.0 - slow), _UNKNOWN) * says(call.outcome_size)
    page = _STATE * _share(call.outcome_size, _PAGE)
    return max(line, page, _SAME_TEXT * _share(len(call.sample), _TEXT))


def _share(size: int, whole: int) -> float:
    return min(max((size - _LONG) / (whole - _LONG), 0.0), 1.0)


class Since(NamedTuple):
    """The calls between a call and the same call before it."""

    fresh: bool
    """True if there was none before, as far back as is remembered."""
    changed: bool = False
    """True if it never had this outcome before."""
    equal: bool = False
    """True if it had this outcome before."""
    pause: float = 0.0
    """The longest rest in between, in seconds. A model that thinks does not rest, and neither does
    the call itself; another call that says little gives it a quarter of its time."""
    news: float = 0.0
    """Mean novelty of the calls in between, each 0 to 1; all of it, and of what the run answered,
    if an agent's run ended in between."""
    acted: float = 0.0
    """The share of calls in between that may have changed something once more."""
    took: float = 0.0
    """Duration of the call itself in seconds, which counts as rest for an agent that was told to
    wait."""
    unsure: float = 0.0
    """Seconds more that may have been a rest, where a model that is not seen seems to be slow."""
    worth: float = 0.0
    """The news as far as they count towards a hint: less of a tool that always answers the same."""
    sure: float = 0.0
    """The longest rest before calls, where models are seen: no part of it is thinking or a call."""
    thought: float = 0.0
    """Seconds that a model took before it; 0 where none is seen."""


_ALIKE: Final = 4.0
"""Different calls after which half is learned about a tool that answers every question the same,
such as one for thoughts or notes; fewer are chance. It may still act, so stops ignore this."""
_COUNTED: Final = Struct("5q2d")
"""Counters at the last time a call was made: calls, working calls, acts, runs, the turn, news and
its worth. Packed into one flat tuple with the answers, because a session keeps many."""
_Made = tuple[Any, ...]

_FIRST: Final = Since(fresh=True)
_WORDINGS: Final = 4
"""Answers of one call that are remembered: a lamp that goes on and off is no news."""
_THINKS_S: Final = 10.0
"""Seconds that a model seldom takes longer than, for one answer; one that does varies by as much
as it takes longer."""
_GAPS: Final = 8
"""Gaps from which the usual pace of an agent whose model is not seen is told."""
_SLOW: Final = 5
"""Gaps from which on a model is taken to be slower: before fewer its agent may have waited."""


def may_act(call: Evidence) -> bool:
    """True if a call may have changed something: what runs code may, whatever it answers."""
    return call.effect is not _WAIT and (call.runs_code or call.effect is not _READ)


class Pace:
    """Remembers the newest 64 different calls of an agent, and what was between them."""

    __slots__ = (
        "_acts", "_calls", "_end", "_gaps", "_known", "_learns", "_news", "_rests", "_runs",
        "_thought", "_works", "_worth",
    )  # fmt: skip

    def __init__(self) -> None:
        self._acts = self._calls = self._end = self._runs = self._works = 0
        self._news = self._worth = 0.0
        self._thought = -1
        # Seconds before calls that were not made before, where no model is seen.
        self._gaps = deque[float](maxlen=_GAPS)
        self._learns = True
        # Of each of the newest calls the rest before it and the one that it gives, in seconds.
        self._rests = array("d")
        self._known: dict[int, _Made] = {}

    def follow(self, past: Pace) -> None:
        """Shares the usual gaps of one that knows the past, goes on too, and learns them alone."""
        self._gaps, self._learns = past._gaps, False

    def thought(self, took: int) -> None:
        """A model took nanoseconds."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def ran(self, news: float) -> None:
        """A run of an agent has ended; what it answered is news to whoever runs it."""
        self._runs += 1
        self._news += news
        self._worth += news

    def add(
        self, call: Evidence, start: int, *, works: bool = True, turn: int = 0, alike: int = 0
    ) -> Since:
        """Notes a call that began then (0: unknown): what was between it and the one before.

        One that does nothing, a note or a plan, is neither news nor does it lessen any. `alike` of
        its tool's calls before, all different, had its answer.
        """
        before = None if call.call is None else self._known.get(call.call)
        thought = self._thought
        rest, unsure = self._rest(start, fresh=before is None)
        if call.time >= self._end or was_set_back(self._end, call.time):
            self._end = call.time
        took = max(call.time - start, 0) / 1e9 if start else 0.0
        since = _FIRST
        if before is not None:
            since = self._since(before, call.outcome, rest)
            since = since._replace(took=took, unsure=unsure, thought=max(thought, 0) / 1e9)
        if call.call is None:
            since = Since(fresh=False)
        elif before is not None and _COUNTED.unpack(before[0])[4] != turn:
            # What was done in another turn of the user is done anew.
            since = since._replace(fresh=True)
        self._calls += 1
        self.did(call, since, works=works, alike=alike)
        # Who calls a tool that does nothing else means to give it time, however long that is; and
        # what answers with a page has worked, and not waited.
        waits = call.effect is _WAIT
        gave = max(took, _WRONG_S) if waits else _GIVEN * took * (1.0 - says(call.outcome_size))
        self._rests.extend((rest, gave))
        del self._rests[: -2 * CALLS]
        if call.call is not None:
            answers = () if before is None else before[1:][1 - _WORDINGS :]
            counted = _COUNTED.pack(
                self._calls, self._works, self._acts, self._runs, turn, self._news, self._worth
            )
            keep(self._known, call.call, (counted, *answers, call.outcome), CALLS)
        return since

    def did(self, call: Evidence, since: Since, *, works: bool, alike: int) -> None:
        """Counts what a call brought or may have changed: its own, or another agent's beside it."""
        self._works += works
        if works and not call.failing:
            acts = may_act(call)
            if since.fresh or since.changed:
                # A look that never gave this answer before shows that something has moved.
                news = 1.0 if since.changed or acts or call.effect is _WAIT else call.novelty
                news = 1.0 if news is None else news
                unknown = call.effect is _UNKNOWN_EFFECT and not call.runs_code
                # It may have made another thing, as a known act does: the mean of the calls since a
                # repeat is all news then, whatever was read beside it.
                self._news += CALLS if unknown and since.fresh else news
                self._worth += news * _ALIKE / (_ALIKE + alike) if unknown else news
            else:
                self._acts += acts

    def _rest(self, start: int, *, fresh: bool) -> tuple[float, float]:
        """Seconds of rest before a call that starts, and seconds more that may have been one."""
        gap = max(start - self._end, 0) / 1e9 if start and self._end else 0.0
        if self._thought >= 0:
            thought, self._thought = self._thought / 1e9, 0
            return max(gap - thought, 0.0), 0.0
        # Where models are not seen, a part of it is thinking: what is usual before other calls.
        gaps = sorted(self._gaps)
        usual = gaps[len(gaps) // 2] if gaps else gap / 2
        sure = min(usual, _THINKS_S) if gaps else usual
        usual = max(usual, 2 * usual - _THINKS_S) if len(gaps) >= _SLOW else sure
        # Calls of one message follow each other at once: among longer gaps such a one says nothing.
        if fresh and gap and self._learns and gap >= min(max(gaps, default=0.0), _SLACK_S):
            self._gaps.append(gap)
        rest = max(gap - usual, 0.0)
        return rest, max(gap - sure, 0.0) - rest

    def _since(self, before: _Made, outcome: int | None, rest: float) -> Since:
        counted, *answers = before
        calls, works, acts, runs, _, news, worth = _COUNTED.unpack(counted)
        between = self._calls - calls
        equal = outcome is not None and outcome in answers
        changed = outcome is not None and not equal and None not in answers
        sure = rest if self._thought >= 0 else 0.0
        rests = self._rests[-2 * between :] if between else ()
        longest = max((rest, *rests))
        if self._thought >= 0:
            sure = max((rest, *rests[::2]))
        worked = max(self._works - works, 1)
        # Runs that begin alike are one each, as far as each of them brings something.
        over = worked if runs == self._runs else 1
        brought, worth = (self._news - news) / over, (self._worth - worth) / over
        acted = (self._acts - acts) / worked
        return Since(False, changed, equal, longest, brought, acted, worth=worth, sure=sure)


_FADE: Final = 0.95
"""Share that a repeat keeps with each later one: the last twenty count."""
_HALF: Final = 4.0
"""Repeats after which half is learned about a tool; fewer are chance."""
_EASE: Final = 2.5
"""Highest factor of thresholds, for a tool whose repeats all pay off."""


class RepeatBaseline:
    """Learns, per tool, how often an equal call got another answer than before, and not a failure.

    The more often, the more repeats it takes before they count as a loop: whatever is watched
    through such a tool moves, and what fails for a while works in the end. Of what fails in another
    way that says nothing.
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, tuple[float, float]] = {}

    def ease(self, call: Evidence, since: Since) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by."""
        if not since.fresh:
            repeats, paying = self._tools.get(call.tool, (0.0, 0.0))
            # What found nothing once more, in another time, has not paid off either.
            paid = since.changed and not (call.failing or call.nothing or call.rejects)
            counted = repeats * _FADE + 1.0, paying * _FADE + paid
            keep(self._tools, call.tool, counted, CALLS)
        return self.of(call)

    def of(self, call: Evidence) -> float:
        """Factor for the thresholds of a call."""
        if call.failing and not call.transient:
            return 1.0
        repeats, paying = self._tools.get(call.tool, (0.0, 0.0))
        return 1.0 + (_EASE - 1.0) * paying * repeats / (repeats**2 + _HALF**2)


_LINE: Final = 200
"""Characters of a line that is put below answers: a longer one is content."""
_LINES: Final = 4
"""Lines at the end of an answer that are looked at: what is put there is brief."""
_FIELDS: Final = 8
"""Fields of an answer that are looked at, likewise."""
_HEAD: Final = 128
"""Bytes at the start of an answer that identify its kind."""
_KINDS: Final = 3
"""Kinds of answers that have it: two may have a line in common by chance."""
_UNLIKE: Final = 2
"""Unlike answers that end alike, as far as it makes them shorter."""
_ANSWERS: Final = 5
"""Answers in a row that have it: of as many unlike numbers one row in sixty only rises or falls."""
_ASKED: Final = 4_000
"""Characters of a question that are looked through for the values of its answer: two pages."""
_BIG: Final = 2**63
"""Numbers from which no counter of anything is: Python writes out only so many digits."""
_VALUE: Final = re.compile(r"(?<![\w.-])([\w.-]{0,40}?\d[\w.-]*)")
"""A number, or a word with a digit among its first 40 characters, as ids have them. Two repetitions
without a bound in a row might take the square of a line's length."""
_SHAPE: Final = re.compile(_VALUE.pattern.encode())
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:?]{0,32}[@-~]")
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


class _Piece(NamedTuple):
    """A line or a field in the last answer: its values, and which way each number has gone."""

    values: tuple[str, ...]
    ways: tuple[int, ...] = ()

    def to(self, values: tuple[str, ...]) -> _Piece | None:
        """It in the next answer; None if it stays, or a number turns."""
        if values == self.values or len(values) != len(self.values):
            return None
        ways = tuple(map(_way, self.values, values))
        before = self.ways or ways
        if any(was * now < 0 for was, now in zip(before, ways, strict=True)):
            return None
        return _Piece(values, tuple(was or now for was, now in zip(before, ways, strict=True)))


def _way(was: str, now: str) -> int:
    """1 if a number rises, -1 if it falls, 0 if it stays or is none."""
    if not (_NUMBER.fullmatch(was) and _NUMBER.fullmatch(now)):
        return 0
    return (float(now) > float(was)) - (float(now) < float(was))


class Frame:
    """Learns the text that follows every answer, whatever was called.

    Values that change with every call say nothing about it: tokens left, money spent, the number or
    id of the call. A field, or one of the last lines, is learned once five answers in a row from
    three tools (or three programs of a shell) had it, with values that were never those of the last
    answer or of the question, and with numbers that only went one way; numbers of several things
    looked at in turn go up and down. Text that never changes, such as a reminder, does not make an
    answer longer: last lines are learned if answers of two tools, or two of a shell, share them.
    Both are forgotten with the first answer that differs.
    """

    __slots__ = ("_above", "_kinds", "_last", "_pieces", "_still", "_times")

    def __init__(self) -> None:
        self._pieces: dict[str, _Piece] = {}
        # What gave the answers that had them: a tool, or of a shell the beginning of the answer.
        self._kinds: tuple[bytes | str | None, ...] = ()
        self._times = 0
        # The last line, the lines that the last answers end with, and what stood above them: a
        # tool, or of a shell the key of the text.
        self._last = self._still = ""
        self._above: tuple[object, ...] = ()

    def taken_off(self, step: Step, reading: Reading, *, runs_code: bool) -> Step:
        """The step without what was learned, nor colours; the very same one if that is nothing."""
        if step.error or reading.failure:
            return self._failed(step, reading)
        said = reading.said
        # What one tool says below all its answers may be what it was asked for.
        moves = self._kinds != (step.name,)
        if not isinstance(said, str):
            if not (moves and is_map(said)):
                return step
            self._learn(_fields(said), step, reading, runs_code=runs_code)
            rest = self._without_fields(said)
            return step if rest is said else replace(step, outcome=rest)
        rest = text = (_plain(said) if "\x1b[" in said else said).rstrip()
        if moves:
            self._learn(_lines(rest, self._pieces), step, reading, runs_code=runs_code)
            rest = self._without_lines(rest)
        last = rest[max(rest.rfind("\n") + 1, len(rest) - _LINE) :]
        if last == self._last:
            rest = self._stays(rest, step.name, reading.arguments if runs_code else None)
        else:
            self._last, self._above = last, ()
        return step if rest is text and "\x1b[" not in said else replace(step, outcome=rest)

    def _failed(self, step: Step, reading: Reading) -> Step:
        """A failed step without what was learned: of errors many come without it."""
        said = step.error_text if step.error else reading.failure
        if not said:
            return step
        text = _plain(said).rstrip()
        rest = self._without_still(self._without_lines(text))
        if rest is text and "\x1b[" not in said:
            return step
        return replace(step, error=True, error_text=rest)

    def _learn(
        self, here: dict[str, tuple[str, ...]], step: Step, reading: Reading, *, runs_code: bool
    ) -> None:
        """Keeps of the lines or fields that move those that the answer has."""
        kind = reading.found.raw[:_HEAD] if runs_code else step.name
        known = not self._pieces.keys().isdisjoint(here)
        moved = _moved(self._pieces, here, reading) if known else {}
        if not moved:
            self._pieces = {name: _Piece(values) for name, values in here.items()}
            self._kinds, self._times = (kind,), 1
            return
        self._pieces = moved
        self._times += 1
        if len(self._kinds) < _KINDS and _shape_of(kind) not in map(_shape_of, self._kinds):
            self._kinds += (kind,)

    def _stays(self, text: str, tool: str | None, command: object) -> str:
        """A text that ends like the one before: without the lines that never change."""
        if not self._above:
            self._still = "\n".join(text[-_LINE * _LINES :].rsplit("\n", _LINES)[1:])
        while not text.endswith(self._still):
            self._still = self._still.partition("\n")[2]
        size = len(text) - len(self._still)
        above = tool if command is None else key_of_text(text, 0, size)
        # Where a terminal shows no more above them than the command, they are its answer.
        said = command is None or not _is_shown(text[:size], command)
        if said and above not in self._above and len(self._above) < _UNLIKE:
            self._above += (above,)
        return self._without_still(text)

    @property
    def _moves(self) -> bool:
        """True if a moving part has been learned."""
        return self._times >= _ANSWERS and len(self._kinds) >= _KINDS

    def _without_fields(self, fields: dict[str, object]) -> dict[str, object]:
        if not self._moves:
            return fields
        return {name: value for name, value in fields.items() if name not in self._pieces}

    def _without_lines(self, text: str) -> str:
        if not self._moves:
            return text
        head, *lines = text.rsplit("\n", _LINES)
        kept = [line for line in lines if _form_of(line[-_LINE:])[0] not in self._pieces]
        return text if len(kept) == len(lines) else "\n".join((head, *kept)).rstrip()

    def _without_still(self, text: str) -> str:
        above = len(text) - len(self._still)
        # A longer text says all that a length can say.
        if len(self._above) < _UNLIKE or above > _LINE or not text.endswith(self._still):
            return text
        return text[:above].rstrip() if self._still else text


def _moved(
    pieces: Mapping[str, _Piece], here: Mapping[str, tuple[str, ...]], reading: Reading
) -> dict[str, _Piece]:
    """Values of an answer that differ from the last answer and were not in the question."""
    asked = reading.arguments if reading.raw is None else reading.raw[:_ASKED].decode("latin-1")
    given = frozenset(_VALUE.findall(asked[:_ASKED]) if isinstance(asked, str) else ())
    return {
        name: piece
        for name, values in here.items()
        if name in pieces
        and given.isdisjoint(values)
        and (piece := pieces[name].to(values)) is not None
    }


def _is_shown(text: str, arguments: object) -> bool:
    """True if all lines of a text are those of a command, each behind a prompt."""
    lines = [line.rstrip() for line in text[-_ASKED:].split("\n") if line.strip()]
    command = (command_of(arguments) or "")[:_ASKED]
    asked = tuple(line.rstrip() for line in command.split("\n") if line.strip())
    return bool(lines) and all(line.endswith(asked) for line in lines)


def _plain(text: str) -> str:
    """A text without the colours of a terminal: they hide words, and say nothing."""
    return _COLOURS.sub("", text)


def _shape_of(kind: bytes | str | None) -> bytes | str | None:
    """The beginning of an answer without its values, or a tool."""
    return _SHAPE.sub(b"#", kind) if isinstance(kind, bytes) else kind


def _form_of(line: str) -> tuple[str, tuple[str, ...]]:
    """A line without its values, and these; of one like `name: value` only the name is its form."""
    parts = _VALUE.split(line)
    return "#".join(parts[::2]).removesuffix(": #"), tuple(parts[1::2])


def _lines(text: str, known: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The last lines of a text with their values; only the last one, if that is not known."""
    form, values = _form_of(text[text.rfind("\n") + 1 :][-_LINE:])
    found = {form: values}
    if form in known:
        lines = text.rsplit("\n", _LINES)[1:-1]
        found.update(_form_of(line) for line in lines if len(line) <= _LINE)
    return found


def _fields(fields: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The fields of a record that are a number, or one word with a digit in it."""
    few = islice(fields.items(), _FIELDS)
    texts = ((name, _as_text(value)) for name, value in few if _as_text(name))
    return {name: (text,) for name, text in texts if text and _VALUE.fullmatch(text)}


def _as_text(value: object) -> str:
    """A number or a short text as text; empty for anything else."""
    if type(value) is str:
        return value if len(value) <= _LINE else ""
    number = type(value) in (int, float) and -_BIG < cast("float", value) < _BIG
    return str(value) if number else ""
