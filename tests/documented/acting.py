"""A session in replay, of which only what is more than a note on the trace is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_loopguard import LoopGuard, Settings

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step


@dataclass
class Run:
    """One session of a guard in replay, and what it decided: hints and stronger."""

    settings: Settings = field(default_factory=Settings)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = LoopGuard(
            self.settings, clock="replay", on_decision=lambda _, found: self._decided(found)
        )

    def calls(self, *steps: Step) -> list[str]:
        """Observes the steps; returns the actions decided so far."""
        for step in steps:
            self.guard.observe(step, "run")
        return self.actions

    @property
    def actions(self) -> list[str]:
        """Actions decided so far, in order."""
        return [decision.action.value for decision in self.decisions]

    def _decided(self, decision: Decision) -> None:
        if decision.action.rank:
            self.decisions.append(decision)
