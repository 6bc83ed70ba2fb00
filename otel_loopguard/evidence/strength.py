"""What a repeat weighs towards a stop: a product of few factors, each 0 to 1.

A known word accuses (it failed, found nothing, turned down; it reads what only the agent changes).
What is not known weighs little, never nothing: it is judged later, not harder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Effect, ErrorClass

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence

_REMEMBERED: Final = 64
_WATCH_S, _RETRY_S = 15.0, 30.0
"""Looks as far apart are a watch; who asks again what failed or found nothing may take longer."""
_LITTLE, _MUCH, _PAGE = 10, 80, 400
"""Characters: one word comes again by chance, a line less so, and a page is a state of things."""

READS, LOOKS, REACHES, UNKNOWN, ACTS = 1.0, 0.6, 0.15, 0.1, 0.1
"""A call that reads what the agent alone changes; that reads; that reaches others (a mail, a
payment); of unknown kind; that acts."""
MASKED, GUESSED, RENUMBERED = 0.8, 0.6, 0.15
"""Equal but for spelling; for a value that looks like a nonce; but for values in the answer."""
OTHER: Final = 0.15
"""Another call that fails with the same error."""
TRY: Final = 0.1
"""Another try that is turned down in the same words."""
TRANSIENT, CUT, UNSEEN = 0.1, 0.1, 0.02


def size(evidence: Evidence) -> float:
    """How much an answer says by its length."""
    return min(max((evidence.outcome_size - _LITTLE) / (_MUCH - _LITTLE), 0.0), 1.0) ** 2


def accused(evidence: Evidence) -> bool:
    """Whether the answer says, in known words, that nothing came of it."""
    return (
        evidence.failing or evidence.rejects or evidence.nothing or evidence.refused
        or (evidence.empty and evidence.effect is Effect.READ)
    )  # fmt: skip


def haste(evidence: Evidence, *, blamed: bool = True) -> float:
    """How soon it was asked again: 1 without a pause, 0 where it is a watch."""
    if blamed:
        return max(1.0 - (evidence.pause / _RETRY_S) ** 2, 0.0)
    return max(1.0 - evidence.pause / _WATCH_S, 0.0)


def strength(evidence: Evidence, identity: float = 1.0) -> float:
    """What one more of these weighs towards a stop."""
    if evidence.outcome is None:
        return UNSEEN * identity
    if evidence.cut:
        identity *= CUT
    blamed = accused(evidence)
    pause = haste(evidence, blamed=blamed)
    # Who was told that the call itself is wrong has not heard it, whatever else it does.
    between = 1.0 - evidence.news * (0.5 if evidence.refused or evidence.call_error else 1.0)
    if evidence.transient:
        kind = TRANSIENT
    elif blamed or evidence.local:
        kind = READS
    else:
        acts = evidence.acts or evidence.effect is Effect.WRITE
        reads = evidence.effect is Effect.READ and not evidence.runs_code
        known = ACTS if acts else LOOKS if reads else UNKNOWN
        page = min(max((evidence.outcome_size - _MUCH) / (_PAGE - _MUCH), 0.0), 1.0)
        kind = max(
            known * size(evidence), LOOKS * page, REACHES if acts and evidence.reaches else 0.0
        )
    return identity * kind * pause * between


class Between:
    """What was done, and how long was waited, between a call and the same call before."""

    __slots__ = ("_calls", "_end", "_fresh", "_gaps", "_known", "_thought")

    def __init__(self) -> None:
        self._calls = self._fresh = self._end = 0
        self._thought = -1
        self._gaps: list[float] = []
        self._known: dict[int, tuple[int, int]] = {}

    def thought(self, took: int) -> None:
        """A model took nanoseconds: thinking is no pause."""
        self._thought = max(self._thought, 0) + max(took, 0)

    def add(self, call: int | None, start: int, end: int, *, fresh: bool) -> tuple[float, float]:
        """The longest pause since the same call, in seconds, and the share of new calls since."""
        gap = max(start - self._end - max(self._thought, 0), 0) / 1e9 if start and self._end else 0
        if self._thought < 0:
            # Where models are not seen, half of it may be thinking.
            gap /= 2
        self._thought, self._end = min(self._thought, 0), max(self._end, end)
        before = None if call is None else self._known.get(call)
        pause = news = 0.0
        if before is not None:
            calls, known = before
            since = self._calls - calls
            # What another call took was a pause of this one.
            pause = max(gap, max(self._gaps[-2 * since :], default=0.0) if since else 0.0)
            news = (self._fresh - known) / since if since else 0.0
        self._calls += 1
        self._fresh += fresh
        self._gaps = [*self._gaps[2 - 2 * _REMEMBERED :], gap, (end - start) / 1e9 if end else 0.0]
        if call is not None:
            keep(self._known, call, (self._calls, self._fresh), _REMEMBERED)
        return pause, news
