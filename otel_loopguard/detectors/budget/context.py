"""Is it time to compact the context? (E13)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Kind, Severity, Step
from otel_loopguard.detectors.budget.verdict import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_KEY: Final = 102
_MOST: Final = 1 << 40


class ContextSize:
    """Advises to compact the context: every five completed agents, and from 100,000 input tokens.

    Agents are those that ended inside of another run (`stall_compact_agents`); tokens are the input
    of one model call (`stall_compact_tokens`), said once until it is below half of that again. It
    leads to a hint at most, and to that only where `stall_action` is a hint or stronger.

    Source: FEATURES E13.
    """

    name = "context_size"
    family = "budget"
    takes = Step
    __slots__ = ("_action", "_agents", "_every", "_full", "_tokens")

    def __init__(self, settings: Settings) -> None:
        self._every = settings.stall_compact_agents
        self._tokens = settings.stall_compact_tokens
        self._action = verdict(settings, settings.stall_action, Action.HINT)
        self._agents = 0
        self._full = False

    def user_turn(self) -> None:
        """A user spoke: the context is as large as before."""

    def observe(self, step: Step) -> Detection | None:
        """Takes a step; gives a detection at every fifth agent, and when the context is large."""
        if step.kind is Kind.MODEL and self._tokens:
            return self._model(step.tokens_in)
        if step.kind is not Kind.AGENT or not self._every or step.parent_id is None:
            return None
        self._agents += 1
        if self._agents % self._every:
            return None
        counted = f"{self._agents} agents have completed their work"
        return self._detection("compact_agents", self._agents, self._agents, counted)

    def _model(self, tokens: int | None) -> Detection | None:
        if tokens is None:
            return None
        tokens = min(max(tokens, 0), _MOST)
        if self._full or tokens < self._tokens:
            self._full = self._full and tokens * 2 >= self._tokens
            return None
        self._full = True
        counted = f"a model call had {tokens} input tokens"
        return self._detection("compact_tokens", tokens, self._tokens, counted)

    def _detection(self, reason: str, count: int, threshold: int, counted: str) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=1.0,
            keys=frozenset({_KEY}),
            count=count,
            threshold=threshold,
            message=f"{counted}: a good moment to compact the context",
            max_action=self._action,
            own=self._action,
            advice="Sum up what was reached and go on with that; say so with control.compacted().",
            intervention="compact_context",
        )
