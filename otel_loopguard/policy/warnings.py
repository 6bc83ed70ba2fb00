"""How many different warnings a session may get before it is stopped (D8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.policy.ladder import Verdict
    from otel_loopguard.settings import Settings

_NAME = "warnings"


class Warnings:
    """Counts the loops of one session that were spoken of, each once.

    More than `warning_limit` of them are a verdict of their own, an abort. By default there is no
    limit: a long healthy run may be warned of many different things, and length is never a sign.

    Source: FEATURES D8 ("warnings above a threshold stop").
    """

    __slots__ = ("_limit", "_loops")

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.warning_limit
        self._loops: set[tuple[str, int]] = set()

    def user_turn(self) -> None:
        """A user spoke: what was warned of before belongs to another task."""
        self._loops.clear()

    def count(self, verdict: Verdict) -> Detection | None:
        """Counts one verdict; a detection if it is one warning too many."""
        loop = (verdict.detection.detector, verdict.loop.id)
        if not self._limit or not _warns(verdict.action) or loop in self._loops:
            return None
        self._loops.add(loop)
        if len(self._loops) <= self._limit:
            return None
        return self._detection(verdict)

    def _detection(self, verdict: Verdict) -> Detection:
        count = len(self._loops)
        self._loops.clear()
        return Detection(
            detector=_NAME,
            reason="too_many_warnings",
            severity=Severity.FATAL,
            confidence=0.8,
            keys=verdict.loop.keys,
            count=count,
            threshold=self._limit + 1,
            message=f"{count} different warnings were given; the limit is {self._limit}. The last "
            f"one: {verdict.detection.message}",
            family=_NAME,
            own=Action.ABORT,
        )


def _warns(action: Action) -> bool:
    return Action.HINT.rank <= action.rank < Action.DENY.rank
