"""The cycles of agents that a session came to, for people (B8)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentCycle:
    """One cycle of agents, as it stands (B8).

    Attributes:
        id: Its number within the session, from 1.
        patterns: The rules that saw it (`pair_cycle`, `agent_cycle`, …), in the order in which they
            did.
        count: What was counted, the highest so far.
        found: Number of the step, within the session, at which it was found.
        last: Number of the step at which it was seen last.
        intervention: What was last called for: `break_cycle`, `inject_context` or `escalate_human`;
            None until something was.
        escalated: Whether it was put before a human.
        resolution: How it ended: `faded`, `user_turn`, `cleared` or `restored`; None while it goes
            on.
    """

    id: int
    patterns: tuple[str, ...]
    count: float
    found: int
    last: int
    intervention: str | None
    escalated: bool
    resolution: str | None
