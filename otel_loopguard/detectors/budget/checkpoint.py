"""Is it time to save what was reached? (C10)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity, Spending
from otel_loopguard.detectors.budget.verdict import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_KEY: Final = 101


class CheckpointAdvice:
    """Advises a checkpoint every `budget_checkpoint_every` (25) tool calls.

    Only where that or `budget_action` is set. It says nothing about the run. It leads to a hint at
    most, and to that only where `budget_action` is a hint or stronger.

    Source: FEATURES C10.
    """

    name = "checkpoint_advice"
    family = "budget"
    takes = Spending
    __slots__ = ("_action", "_every", "_given")

    def __init__(self, settings: Settings) -> None:
        self._every = settings.checkpoint_every
        self._action = verdict(settings, settings.budget_action, Action.HINT)
        self._given = 0

    def user_turn(self) -> None:
        """A user spoke: calls go on being counted."""

    def observe(self, spending: Spending) -> Detection | None:
        """Takes what was spent; gives a detection at every 25th call."""
        if not self._every or spending.calls // self._every == self._given:
            return None
        self._given = spending.calls // self._every
        return Detection(
            detector=self.name,
            reason="checkpoint_due",
            severity=Severity.WARNING,
            confidence=1.0,
            keys=frozenset({_KEY}),
            count=spending.calls,
            threshold=self._given * self._every,
            message=f"{spending.calls} tool calls were made: a good moment for a checkpoint",
            max_action=self._action,
            own=self._action,
            advice="Save what was reached so far, so that work can go on from there.",
            intervention="checkpoint",
        )
