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
from otel_loopguard.evidence.normalize import CALLS

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence

_READ: Final = Effect.READ

_WATCHES_S: Final = 2.5
"""Seconds of rest after which a third of the haste is left: who looks a few times a minute watches.
So for whatever may change by itself, known words or not; less lets hurried loops pass."""
_TRIES_S: Final = 12.0
"""The same of who tries again what surely failed or is not there: ten seconds halve it, half a
minute leaves nothing. More stops patient retries."""
_RESTED: Final = 0.95
"""So much of a rest, seven seconds, makes a look again a wait; its weight is next to nothing by
then, so that it makes no step."""

_WORD, _LINE, _PAGE = 20, 100, 400
"""Characters of an answer: a word comes again by chance, a line seldom, and a page is a state of
things."""

# What an equal answer says towards a stop, which takes three and a few refusals:
_UNKNOWN: Final = 0.05
"""Of a line of a call of which nothing is known: sixty in a row are a loop in any language."""
_LOOKS: Final = 0.4
"""Of a line that is read: eight in a row. It may change by itself, so less than what is its own."""
_STATE: Final = 0.6
"""Of a page, whatever the call is: five in a row."""
_UNCLEAR: Final = 0.1
"""Of an error that a pause may mend, or of which nothing is known: a dozen is no deny yet."""
_CUT: Final = 0.1
"""What was cut may differ behind the cut."""
_UNSEEN_STOP, _UNSEEN_HINT = 0.02, 0.2
"""What was not captured may be anything; a hint at fifteen is worth a word about it."""
# What it says towards a hint:
_SOFT: Final = 0.5
"""Of an error that a pause may mend half: it has its own budget of time."""
_AMID: Final = 0.8
"""How much of a hint news in between take away: what is asked again and again beside real work
deserves a word, late."""
_PATIENT: Final = 0.7
"""How much of a hint patience takes away from who tries again what came to nothing."""
_LEAST: Final = 0.5
"""The least that any captured answer says for a hint: five words "ok" in a row are a loop."""


def is_accused(call: Evidence) -> bool:
    """True if status, shape or known words of the outcome say that nothing came of it."""
    return (
        call.failing or call.refused or _is_explained(call) or (call.empty and call.effect is _READ)
    )


def _is_explained(call: Evidence) -> bool:
    """True if the outcome says why nothing came of the call."""
    return call.rejects or call.nothing or call.refused or call.call_error


def _is_unclear(call: Evidence) -> bool:
    """True for a failure that a pause may mend, for all that is known of it."""
    of_nothing = call.error and call.error_class is ErrorClass.UNKNOWN
    return call.transient or (of_nothing and not _is_explained(call))


def news_of(novelty: float | None, effect: Effect, *, failing: bool) -> float:
    """How much a call brought: what is not known to read may have changed something."""
    if failing:
        return 0.0
    return 1.0 if novelty is None or effect is not _READ else novelty


def weigh(call: Evidence, since: Since) -> None:
    """Sets what a call weighs: its haste, and what it says for a hint and for a stop."""
    accused, unclear = is_accused(call), _is_unclear(call)
    firm = accused and not unclear
    call.rested = rested = _rested(since.pause + since.took * call.pending, firm=firm)
    waits = call.effect is Effect.WAIT
    looks = call.pending or (rested >= _RESTED and not accused)
    call.waits = waits or (looks and not call.fresh)
    # What has taken a minute to say that it is not ready, in whatever words, has waited for one; a
    # page says more than that, and what is the agent's own does not wait.
    page = min(max((call.outcome_size - _LINE) / (_PAGE - _LINE), 0.0), 1.0)
    gave = since.took * (0.0 if firm or call.own else 1.0 - page)
    haste = 0.0 if waits else 1.0 - _rested(since.pause + gave, firm=firm)
    heard = 1.0 - _PATIENT * rested if firm else 0.0 if waits else 1.0 - rested
    # Who was told that the call itself is wrong has not heard it, whatever else it does.
    told = call.refused or call.call_error
    news = min(max(since.news, 0.0), 1.0)
    call.hint_weight = heard * (1.0 - _AMID * news)
    call.stop_weight = haste * (1.0 - news * (0.5 if told else 1.0))
    if call.outcome is None:
        call.hint_weight *= _UNSEEN_HINT
        call.stop_weight *= _UNSEEN_STOP
        return
    loud = accused or call.effect is _READ
    said = 1.0 if loud else max(min(call.outcome_size / _LINE, 1.0), _LEAST)
    call.hint_weight *= _SOFT if call.transient else said
    if unclear:
        call.stop_weight *= _UNCLEAR
    elif not (firm or call.own):
        line = min(max((call.outcome_size - _WORD) / (_LINE - _WORD), 0.0), 1.0)
        looks = call.effect is _READ and not call.runs_code
        call.stop_weight *= max((_LOOKS if looks else _UNKNOWN) * line**2, _STATE * page)
    if call.cut:
        call.stop_weight *= _CUT


def _rested(rest: float, *, firm: bool) -> float:
    """How much of a rest so many seconds are."""
    return 1.0 - exp(-((rest / _TRIES_S) ** 2) if firm else -rest / _WATCHES_S)


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
    the call itself; another call gives it time."""
    news: float = 0.0
    """How much the calls in between brought that was new, each 0 to 1, on the average."""
    took: float = 0.0
    """What the call itself took, in seconds: which is a rest of who was told to wait."""


_FIRST: Final = Since(fresh=True)
_WORDINGS: Final = 4
"""Answers of one call that are remembered: a lamp that goes on and off is no news."""


class Pace:
    """Remembers the newest 64 different calls of a session, and what was between them."""

    __slots__ = ("_calls", "_end", "_known", "_news", "_rests", "_thought")

    def __init__(self) -> None:
        self._calls = self._end = 0
        self._news = 0.0
        self._thought = -1
        # Of each of the newest calls the rest before it and what it took, in seconds.
        self._rests: list[float] = []
        self._known: dict[int, tuple[tuple[int | None, ...], int, float]] = {}

    def thought(self, took: int) -> None:
        """A model took nanoseconds."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def add(  # noqa: PLR0913
        self, call: int | None, outcome: int | None, start: int, end: int, *, news: float,
        waits: bool,
    ) -> Since:  # fmt: skip
        """Notes a call, and says what was between it and the same call before.

        Of a call that was not made before, or answered otherwise, `news` is what it brought.
        """
        rest = 0.0
        if start and self._end:
            rest = max(start - self._end - max(self._thought, 0), 0) / 1e9
        if self._thought < 0:
            # Where models are not seen, half of it may be thinking.
            rest /= 2
        self._thought, self._end = min(self._thought, 0), max(self._end, end)
        before = None if call is None else self._known.get(call)
        took = max(end - start, 0) / 1e9 if start else 0.0
        since = _FIRST if before is None else self._since(before, outcome, rest, took)
        if call is None:
            since = Since(fresh=False)
        self._calls += 1
        self._news += news if since.fresh or since.changed else 0.0
        if waits:
            # Who calls a tool that does nothing else means to give it time, however long that is.
            took = max(took, _TRIES_S)
        self._rests = [*self._rests[2 - 2 * CALLS :], rest, took]
        if call is not None:
            answers = () if before is None else before[0][1 - _WORDINGS :]
            keep(self._known, call, ((*answers, outcome), self._calls, self._news), CALLS)
        return since

    def _since(
        self, before: tuple[tuple[int | None, ...], int, float], outcome: int | None, rest: float,
        took: float,
    ) -> Since:  # fmt: skip
        answers, calls, news = before
        between = self._calls - calls
        equal = outcome is not None and outcome in answers
        changed = outcome is not None and not equal and None not in answers
        if not between:
            return Since(False, changed, equal, rest, took=took)
        longest = max(rest, *self._rests[-2 * between :])
        return Since(False, changed, equal, longest, (self._news - news) / between, took)


_LEARNED: Final = 4.0
"""Repeats from which a tool is known: fewer are chance."""
_PAYS: Final = 0.5
"""Share of them that brought another answer, from which what is watched through it moves."""
_EASE: Final = 1.5
"""What thresholds of such a tool are multiplied by: two repeats more."""
_FADE: Final = 0.95
"""What a repeat keeps for each one after it: the last twenty count."""


class RepeatBaseline:
    """Learns, per tool, how often an equal call got another answer than before.

    From four repeats on, of which half or more brought another answer, it takes half as many again
    of this tool's repeats before they count as a loop: whatever is watched through it moves.
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: dict[str, tuple[float, float]] = {}

    def ease(self, tool: str, *, again: bool, changed: bool) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by."""
        repeats, paid = self._tools.get(tool, (0.0, 0.0))
        if again:
            repeats, paid = repeats * _FADE + 1.0, paid * _FADE + changed
            keep(self._tools, tool, (repeats, paid), CALLS)
        return _EASE if repeats >= _LEARNED - 0.5 and paid >= _PAYS * repeats else 1.0
