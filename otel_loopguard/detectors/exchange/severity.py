"""How bad a cycle of agents is, and what is to be done about it."""

from __future__ import annotations

from collections import OrderedDict
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOPS: Final = 32
_NOTHING: Final = 1 / 3
"""Mean part of new text up to which next to nothing came back."""


class Level(IntEnum):
    """How bad a cycle of agents is (B5)."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    CRITICAL = 3


class Response(NamedTuple):
    """What a cycle calls for.

    Attributes:
        level: How bad it is.
        intervention: `break_cycle`, `inject_context` or `escalate_human`.
        severity: The severity of its detection.
        max_action: The strongest action that it may lead to.
        unanswered: The same where nobody could end a pause; None without one.
    """

    level: Level
    intervention: str
    severity: Severity
    max_action: Action
    unanswered: Action | None = None

    @property
    def escalates(self) -> bool:
        """Whether it puts the cycle before a human."""
        return self.intervention == "escalate_human"


_BREAK: Final = ("break_cycle", Severity.WARNING, Action.STEER)
_INJECT: Final = ("inject_context", Severity.CRITICAL, Action.ASK)
_USUAL: Final = {
    Level.LOW: _BREAK,
    Level.MEDIUM: _BREAK,
    Level.HIGH: _INJECT,
    Level.CRITICAL: _INJECT,
}


class Responses:
    """Says what a cycle calls for, by its count and by what was tried before.

    Low above `exchange_low` (3), medium from `exchange_medium` (5): break the cycle. High from
    `exchange_high` (8): give context. Critical from `exchange_critical` (12): put it before a
    human; so too from `exchange_escalate_at` on, and where the cycle goes on for
    `exchange_patience` (4) exchanges after an intervention.

    What is put before a human is paused, where a human can be reached. Where nobody could let it go
    on, the hand-off is denied; at a critical level, if no more than a third of what came back was
    new, it leads to an abort too.

    Args:
        settings: Settings of the guard.

    Source: FEATURES B5, B6, B7.
    """

    __slots__ = ("_escalate_at", "_from", "_given", "_low", "_patience")

    def __init__(self, settings: Settings) -> None:
        self._low = settings.exchange_low
        self._from = (
            (settings.exchange_critical, Level.CRITICAL),
            (settings.exchange_high, Level.HIGH),
            (settings.exchange_medium, Level.MEDIUM),
        )
        self._escalate_at = Level[settings.exchange_escalate_at.upper()]
        self._patience = settings.exchange_patience
        self._given: OrderedDict[int, tuple[str, int]] = OrderedDict()

    def to(self, loop: int, count: float, news: float) -> Response | None:
        """What a cycle calls for now; None if it is none yet.

        Args:
            loop: Identity of the cycle.
            count: Exchanges that were counted.
            news: Mean novelty of what came back, 0 to 1.
        """
        if count <= self._low:
            self._given.pop(loop, None)
            return None
        level = self.level(count)
        return self.at(level, news, escalate=self._ignored(loop, _USUAL[level][0]))

    def at(self, level: Level, news: float, *, escalate: bool) -> Response:
        """What a level calls for.

        Args:
            level: How bad the cycle is.
            news: Mean novelty of what came back, 0 to 1.
            escalate: Whether it is put before a human, whatever its level.
        """
        if not escalate and level < self._escalate_at:
            return Response(level, *_USUAL[level])
        critical = level is Level.CRITICAL
        severity = Severity.FATAL if critical else Severity.CRITICAL
        ends = Action.ABORT if critical and news <= _NOTHING else Action.DENY
        return Response(level, "escalate_human", severity, Action.PAUSE, ends)

    def level(self, count: float) -> Level:
        """How bad a cycle of so many exchanges is."""
        return next((level for start, level in self._from if count >= start), Level.LOW)

    def forget(self) -> None:
        """A user spoke: what was tried was tried for something else."""
        self._given.clear()

    def _ignored(self, loop: int, intervention: str) -> bool:
        """Whether the cycle went on for too long after the same intervention."""
        given, times = self._given.pop(loop, (intervention, 0))
        times = times + 1 if given == intervention else 1
        self._given[loop] = (intervention, times)
        if len(self._given) > _LOOPS:
            self._given.popitem(last=False)
        return times > self._patience


def advice(intervention: str, agent: str) -> str:
    """A sentence for the runtime on what is to be done.

    Args:
        intervention: `break_cycle`, `inject_context` or `escalate_human`.
        agent: The agent to leave out.
    """
    if intervention == "break_cycle":
        return f"Skip {agent!r} for now: finish this without it, or give it to another agent."
    if intervention == "inject_context":
        return (
            f"Before {agent!r} gets this again, add what was tried so far, what came of it and "
            "what is still missing."
        )
    return "Stop handing this on, and ask a human who is to finish it, and how."
