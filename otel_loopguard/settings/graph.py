"""Settings of the detectors that look at graphs: nodes, and the agents of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Count, Share

_LIMIT = frozenset(("graph_iterations", "graph_iterations_warning", "graph_limit_action"))


class GraphSettings(BaseSettings):
    """What makes a loop of nodes or agents, and how far it may lead."""

    graph_cycle_repeats: Count = Field(
        5, description="Turns of the same nodes, with nothing new in them, that make a cycle (G1)."
    )
    graph_cycle_max_period: int = Field(
        16, ge=1, le=64, description="Longest cycle of nodes that is looked for, in visits (G1)."
    )
    graph_unseen_repeats: Count = Field(
        40,
        description="Turns of the same nodes that give a hint where what is new in them is not "
        "captured (G1).",
    )
    graph_unchanged: int = Field(
        3, ge=2, le=1000, description="Visits of a node that leave its state unchanged (G2)."
    )
    graph_idle_iterations: int = Field(
        5, ge=2, le=1000, description="Iterations with nothing new that are no progress (G3)."
    )
    graph_rapid_ms: float = Field(
        100,
        gt=0,
        allow_inf_nan=False,
        description="Milliseconds from one visit to the next, on average, below which a graph "
        "spins if nothing is new (G4).",
    )
    graph_rapid_transitions: int = Field(
        5, ge=2, le=100, description="Transitions that this average is taken over (G4)."
    )
    graph_iterations: int = Field(
        50,
        ge=2,
        description="Visits of one node in one run of a graph that are its limit, once this, its "
        "warning or its action is set (G5).",
    )
    graph_iterations_warning: Share = Field(
        0.8, description="Part of `graph_iterations` at which a warning is given (G5)."
    )
    graph_limit_action: Literal["allow", "hint", "pause", "abort"] = Field(
        "allow",
        description="What follows at the limit; `allow` only notes it on the trace (G5).",
    )
    graph_max_action: Literal["hint", "steer", "ask", "pause"] = Field(
        "ask", description="Strongest action that nodes with nothing new may lead to (G1 to G3)."
    )

    @property
    def graph_limited(self) -> bool:
        """Whether anybody set a limit of iterations (G5)."""
        return not self.model_fields_set.isdisjoint(_LIMIT)
