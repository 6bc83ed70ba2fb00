"""Limits of single agents and of types of tasks, beside those of the guard (C20)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings

_Count = Annotated[int | None, Field(gt=0)]
_Amount = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]

LIMITED: Final = {
    "actions": "tool calls",
    "errors": "failed tool calls in a row",
    "tokens": "tokens",
    "cost": "USD",
    "steps": "steps",
    "elapsed_s": "seconds of one task",
}
"""What may be limited, and what is counted."""


class AgentLimits(BaseModel):
    """How much one agent may use in a session; what is not named has no limit of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    actions: _Count = Field(None, description="Its tool calls.")
    errors: _Count = Field(None, description="Its failed tool calls in a row.")
    tokens: _Count = Field(None, description="Tokens of its model calls.")
    cost: _Amount = Field(None, description="Cost of its model calls, in USD.")
    action: Literal["allow", "hint", "ask", "pause", "abort"] | None = Field(
        None, description="What a limit leads to; `budget_action` by default."
    )

    def limits(self) -> tuple[tuple[str, float], ...]:
        """The limits that are set, by name."""
        named = ((name, getattr(self, name, None)) for name in LIMITED)
        return tuple((name, float(limit)) for name, limit in named if limit is not None)


class TaskLimits(AgentLimits):
    """How much a session may use whose task is of one type."""

    steps: _Count = Field(None, description="Steps of any kind.")
    elapsed_s: _Amount = Field(None, description="Seconds between two words of the user.")


class LimitSettings(BaseSettings):
    """Limits that are set for single agents and types of tasks."""

    agent_limits: Mapping[str, AgentLimits] = Field(
        {},
        description="Limits of agents by name (JSON in the variable): `actions`, `errors`, "
        "`tokens`, `cost`, and the `action` that they lead to (C20).",
    )
    task_limits: Mapping[str, TaskLimits] = Field(
        {},
        description="Limits of sessions by the type of their task (JSON in the variable), as "
        "`control.task_type` says it: those of agents, `steps` and `elapsed_s` (C20).",
    )
