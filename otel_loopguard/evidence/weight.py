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

# Seconds of rest after which a third of the haste is left. Who looks a few times a minute watches.
# Who was told to wait, or met what a pause may mend, is a nuisance only within seconds.
_WATCHES_S: Final = 2.5
_WAITS_S: Final = 1.0
# Who tries again what failed has less reason to: a rest of ten seconds halves it, of half a minute
# leaves nothing.
_TRIES_S: Final = 12.0
# So much of a rest makes a look again a wait: seven seconds, or three where it is pending.
_RESTED: Final = 0.95

# Characters of an answer: a word comes again by chance, a line seldom, and a page is a state of
# things.
_WORD, _LINE, _PAGE = 20, 100, 400

# What a call is, as far as that is known. Its own reads can only change by its own doing. Other
# reads may change by themselves. A write, or a call of which nothing is known, is work as a rule,
# and so is one that reaches other people, though it costs more to be wrong.
_OWN: Final = 1.0
_LOOKS: Final = 0.4
_STATE: Final = 0.6
_UNKNOWN: Final = 0.05
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
_LEAST_READ: Final = 0.03
# How much of a hint patience takes away from who tries again what came to nothing.
_PATIENT: Final = 0.7
# The least that any captured answer says for a hint: five words "ok" in a row are a loop.
_LEAST: Final = 0.5


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


def says(call: Evidence) -> float:
    """How much an answer says by its length, from a word to a line."""
    return min(max((call.outcome_size - _WORD) / (_LINE - _WORD), 0.0), 1.0)


def weigh(call: Evidence, since: Since) -> None:
    """Sets what a call weighs: its haste, and what it says for a hint and for a stop."""
    accused = is_accused(call)
    # Who is told that it is not ready after a minute in the call has waited for a minute.
    pause = since.pause + since.took if call.pending else since.pause
    call.rested = rested = _rested(call, pause, accused=accused)
    watches = rested >= _RESTED and not accused
    call.waits = call.effect is _WAIT or (not call.fresh and (call.pending or watches))
    # Who was told that the call itself is wrong has not heard it, whatever else it does.
    told = call.refused or call.call_error
    haste = 0.0 if call.effect is _WAIT else 1.0 - rested
    heard = 1.0 - _PATIENT * rested if accused and not (call.transient or call.pending) else haste
    call.hint_weight = heard * (1.0 - _AMID * since.news)
    call.stop_weight = haste * (1.0 - since.news * (0.5 if told else 1.0))
    if call.outcome is None:
        call.hint_weight *= _UNSEEN_HINT
        call.stop_weight *= _UNSEEN_STOP
        return
    loud = accused or call.effect is _READ
    said = 1.0 if loud else max(min(call.outcome_size / _LINE, 1.0), _LEAST)
    call.hint_weight *= _SOFT if call.transient else said
    call.stop_weight *= _kind(call, accused=accused) * (_CUT if call.cut else 1.0)


def _rested(call: Evidence, pause: float, *, accused: bool) -> float:
    if call.pending or call.transient:
        return 1.0 - exp(-pause / _WAITS_S)
    if accused:
        return 1.0 - exp(-((pause / _TRIES_S) ** 2))
    return 1.0 - exp(-pause / _WATCHES_S)


def _kind(call: Evidence, *, accused: bool) -> float:
    explained = call.rejects or call.nothing or call.refused or call.call_error
    if call.transient or (call.error and call.error_class is _UNCLEAR and not explained):
        return _UNCLEAR_ERROR
    if accused or call.own:
        return _OWN
    page = min(max((call.outcome_size - _LINE) / (_PAGE - _LINE), 0.0), 1.0)
    looks = call.effect is _READ and not call.runs_code
    said = says(call)
    known = _LOOKS * max(said, _LEAST_READ) if looks else _UNKNOWN * said**2
    return max(known, _STATE * page)


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
_REMEMBERED: Final = 64
_WORDINGS: Final = 4


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
        self._rests = [*self._rests[2 - 2 * _REMEMBERED :], rest, took]
        if call is not None:
            answers = () if before is None else before[0][1 - _WORDINGS :]
            keep(self._known, call, ((*answers, outcome), self._calls, self._news), _REMEMBERED)
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


_TRACKED: Final = 64
_LEARNED: Final = 4.0
_PAYS: Final = 0.5
_EASE: Final = 1.5
_FADE: Final = 0.95


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
            keep(self._tools, tool, (repeats, paid), _TRACKED)
        return _EASE if repeats >= _LEARNED - 0.5 and paid >= _PAYS * repeats else 1.0
