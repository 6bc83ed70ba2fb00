"""What one more repeat of a call weighs: a product of few factors, each 0 to 1 and without a cliff.

A known word may accuse: the call failed, it found nothing, it reads what only the agent changes.
What is not known weighs little, and never nothing. So a run in another language, or with tools of
other names, is judged later, and not harder.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Effect, ErrorClass

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence

_READ, _WAIT, _WRITE = Effect.READ, Effect.WAIT, Effect.WRITE
_UNCLEAR, _TRANSIENT = ErrorClass.UNKNOWN, ErrorClass.TRANSIENT

# Nobody rests by chance: an agent that goes round asks again as soon as its model has answered. A
# rest of three seconds leaves a third of a weight and one of five a sixteenth, so that whoever
# looks every five seconds may do so for minutes. Longer, and slow loops never end; shorter, and
# who waits for a file or a message is stopped.
_RESTS_S: Final = 3.0
# Who was told to wait is a nuisance only within a second or two.
_WAITS_S: Final = 1.5
# What is wrong with the call itself no rest can mend; after half a minute somebody did other things.
_WRONG_S: Final = 12.0
# So much of a rest makes a look again a wait: five seconds, or two and a half where it is pending.
_RESTED: Final = 0.95

# Characters: a word comes again by chance, a line of sixty seldom, and a page is a state of things.
_LINE: Final = 60.0
_LONG, _PAGE = 100, 400
# An argument of a line is a button; a text of 250 characters (no more is kept) is not sent again
# unchanged for a reason.
_TEXT: Final = 250

# What a call is, as far as that is known. Its own reads can only change by its own doing. Other
# reads may change by themselves. A write, or a call of which nothing is known, is work as a rule,
# and so is one that reaches other people, though it costs more to be wrong.
_OWN: Final = 1.0
_LOOKS: Final = 0.4
_STATE: Final = 0.6
_UNKNOWN: Final = 0.05
_SAME_TEXT: Final = 0.15
# An error that a pause may mend, or of which nothing is known, is as good as an unknown answer; a
# dozen of them is no deny yet.
_UNCLEAR_ERROR: Final = 0.1
# What was cut may differ behind the cut, and what was not captured may be anything.
_CUT: Final = 0.1
_UNSEEN_STOP: Final = 0.02
_UNSEEN_HINT: Final = 0.2
# Of an error that a pause may mend a hint hears half.
_SOFT: Final = 0.5
# How much of a hint news in between take away: what is asked again and again beside real work
# deserves a word, late.
_AMID: Final = 0.8
# How much of a hint patience takes away from who tries again what came to nothing.
_PATIENT: Final = 0.7
# The least that any captured answer says for a hint: five words "ok" in a row are a loop.
_LEAST: Final = 0.5
# How much of a stop calls in between take away that were done again: a key that was pressed once
# more may have moved something, though nothing shows it. Less of what failed again all the same. A
# hint hears of them in full.
_ACTED: Final = 0.75
_ACTED_IN_VAIN: Final = 0.5


def is_accused(call: Evidence) -> bool:
    """Whether status, shape or known words of the outcome say that nothing came of it."""
    return (
        call.failing
        or call.rejects
        or call.nothing
        or call.refused
        or (call.empty and call.effect is _READ)
    )


def news_of(novelty: float | None, effect: Effect, *, failing: bool) -> float:
    """How much a call brought: what is not known to read may have changed something."""
    if failing:
        return 0.0
    return 1.0 if novelty is None or effect is not _READ else novelty


def may_act(effect: Effect, *, failing: bool) -> bool:
    """True for a call that may have changed something, though it was made before."""
    return not failing and effect is not _READ and effect is not _WAIT


def says(size: int) -> float:
    """How much an answer says by its length in characters, 0 to 1."""
    return 1.0 - exp(-((size / _LINE) ** 2))


def weigh(call: Evidence, since: Since) -> None:
    """Sets what a call weighs: its haste, and what it says for a hint and for a stop."""
    accused = is_accused(call)
    # Who is told that it is not ready after a minute in the call has waited for a minute.
    pause = since.pause + since.took if call.pending else since.pause
    # Who was told that the call itself is wrong has not heard it, whatever else it does.
    told = call.refused or call.call_error
    soon = call.pending or call.transient
    rests = _WAITS_S if soon else _WRONG_S if told else _RESTS_S
    call.rested = rested = 1.0 - exp(-((pause / rests) ** 2))
    watches = rested >= _RESTED and not accused
    call.waits = call.effect is _WAIT or (not call.fresh and (call.pending or watches))
    haste = 0.0 if call.effect is _WAIT else 1.0 - rested
    heard = 1.0 - _PATIENT * rested if accused and not soon else haste
    call.hint_weight = heard * (1.0 - _AMID * since.news)
    call.stop_weight = haste * (1.0 - since.news * (0.5 if told else 1.0))
    call.stop_weight *= 1.0 - since.acted * (_ACTED_IN_VAIN if accused else _ACTED)
    if call.outcome is None:
        call.hint_weight *= _UNSEEN_HINT
        call.stop_weight *= _UNSEEN_STOP
        return
    loud = accused or call.effect is _READ
    said = 1.0 if loud else max(min(call.outcome_size / _LONG, 1.0), _LEAST)
    call.hint_weight *= _SOFT if call.transient else said
    call.stop_weight *= _kind(call, accused=accused) * (_CUT if call.cut else 1.0)


def _kind(call: Evidence, *, accused: bool) -> float:
    explained = call.rejects or call.nothing or call.refused or call.call_error
    if call.transient or (call.error and call.error_class is _UNCLEAR and not explained):
        return _UNCLEAR_ERROR
    if accused or call.own:
        return _OWN
    page = min(max((call.outcome_size - _LONG) / (_PAGE - _LONG), 0.0), 1.0)
    text = min(max((len(call.sample) - _LONG) / (_TEXT - _LONG), 0.0), 1.0)
    looks = call.effect is _READ and not call.runs_code
    said = says(call.outcome_size)
    known = _LOOKS * said if looks else _UNKNOWN * said
    return max(known, _STATE * page, _SAME_TEXT * text)


class Since(NamedTuple):
    """What was between a call and the same call before it."""

    fresh: bool
    """Whether there was none before, as far back as is remembered."""
    changed: bool = False
    """Whether it never had this outcome before."""
    equal: bool = False
    """Whether it had this outcome before."""
    pause: float = 0.0
    """The longest rest in between, in seconds. A model that thinks does not rest, and neither does
    the call itself; another call that says little gives it time."""
    news: float = 0.0
    """How much the calls in between brought that was new, each 0 to 1, on the average."""
    acted: float = 0.0
    """The share of calls in between that may have changed something once more."""
    took: float = 0.0
    """What the call itself took, in seconds: which is a rest of who was told to wait."""


_Made = tuple[tuple[int | None, ...], int, float, int]
"""Answers of a call, and what was counted when it was made last: calls, news, acts."""

_FIRST: Final = Since(fresh=True)
_REMEMBERED: Final = 64
_WORDINGS: Final = 4
# Seconds that a model seldom takes longer than for one answer.
_THINKS_S: Final = 10.0
# How much the newest gap counts in what is usual for an agent whose model is not seen.
_NEWEST: Final = 0.25


class Pace:
    """Remembers the newest 64 different calls of a session, and what was between them."""

    __slots__ = ("_acts", "_calls", "_end", "_known", "_news", "_rests", "_thought", "_usual")

    def __init__(self) -> None:
        self._acts = self._calls = self._end = 0
        self._news = 0.0
        self._thought = -1
        # Seconds before a call that was not made before, where no model is seen; None if unknown.
        self._usual: float | None = None
        # Of each of the newest calls the rest before it and what it took, in seconds.
        self._rests: list[float] = []
        self._known: dict[int, _Made] = {}

    def thought(self, took: int) -> None:
        """A model took nanoseconds."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def add(  # noqa: PLR0913
        self, call: int | None, outcome: int | None, start: int, end: int, *, news: float,
        acts: bool, size: int, waits: bool,
    ) -> Since:  # fmt: skip
        """Notes a call, and says what was between it and the same call before.

        Of a call that was not made before, or is answered otherwise, `news` is what it brings; of
        one made again `acts` says that it may act. `size` are the characters of its answer.
        """
        before = None if call is None else self._known.get(call)
        rest = self._rest(start, fresh=before is None)
        self._end = max(self._end, end)
        took = max(end - start, 0) / 1e9 if start else 0.0
        since = _FIRST if before is None else self._since(before, outcome, rest, took)
        if call is None:
            since = Since(fresh=False)
        self._calls += 1
        if since.fresh or since.changed:
            self._news += news
        else:
            self._acts += acts
        # Who calls a tool that does nothing else means to give it time, however long that is; and
        # what answers with a page has worked, and not waited.
        gave = max(took, _WRONG_S) if waits else took * (1.0 - says(size))
        self._rests = [*self._rests[2 - 2 * _REMEMBERED :], rest, gave]
        if call is not None:
            answers = () if before is None else before[0][1 - _WORDINGS :]
            now = (*answers, outcome), self._calls, self._news, self._acts
            keep(self._known, call, now, _REMEMBERED)
        return since

    def _rest(self, start: int, *, fresh: bool) -> float:
        """Seconds between the last call and one that starts, less what a model took."""
        gap = max(start - self._end, 0) / 1e9 if start and self._end else 0.0
        if self._thought >= 0:
            thought, self._thought = self._thought / 1e9, 0
            return max(gap - thought, 0.0)
        # Where models are not seen, a part of it is thinking: what is usual before other calls.
        usual = gap / 2 if self._usual is None else min(self._usual, _THINKS_S)
        if fresh and gap:
            known = gap if self._usual is None else self._usual
            self._usual = known + _NEWEST * (gap - known)
        return max(gap - usual, 0.0)

    def _since(self, before: _Made, outcome: int | None, rest: float, took: float) -> Since:
        answers, calls, news, acts = before
        between = self._calls - calls
        equal = outcome is not None and outcome in answers
        changed = outcome is not None and not equal and None not in answers
        if not between:
            return Since(False, changed, equal, rest, took=took)
        longest = max(rest, *self._rests[-2 * between :])
        brought, acted = (self._news - news) / between, (self._acts - acts) / between
        return Since(False, changed, equal, longest, brought, acted, took)


_TRACKED: Final = 64
# What a repeat counts less with each that follows: twenty repeats later a third is left.
_FADE: Final = 0.95
# Repeats that say half of what is to be learned of a tool.
_HALF: Final = 4.0
# How many times as much it takes at most, of a tool all of whose repeats bring another answer.
_EASE: Final = 2.5


class RepeatBaseline:
    """Learns, per tool, how often an equal call got another answer than before, and not a failure.

    The more often, the more repeats it takes before they count as a loop: whatever is watched
    through such a tool moves, and what fails at first works in the end.
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, tuple[float, float]] = {}

    def ease(self, tool: str, *, again: bool, paid: bool) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by."""
        repeats, paying = self._tools.get(tool, (0.0, 0.0))
        if again:
            repeats, paying = repeats * _FADE + 1.0, paying * _FADE + paid
            keep(self._tools, tool, (repeats, paying), _TRACKED)
        return 1.0 + (_EASE - 1.0) * paying * repeats / (repeats**2 + _HALF**2)
