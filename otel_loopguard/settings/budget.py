"""Settings of budgets and milestones: how much a run may take, and who says how far it is."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds, Share

_Limit = Annotated[int, Field(ge=0)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_BUDGETS: Final = {
    "steps": ("steps", "steps"),
    "tokens": ("tokens", "tokens"),
    "cost": ("cost", "USD"),
    "actions": ("calls", "tool calls"),
    "task_actions": ("actions", "tool calls of one task"),
    "errors": ("errors", "failed tool calls in a row"),
    "elapsed_s": ("elapsed_s", "seconds of one task"),
    "operation_tokens": ("tokens", "tokens of the whole operation"),
    "phases": ("phases", "phases"),
}
"""What is limited: by name, the field of `Spending` and what is counted."""


class Budget(NamedTuple):
    """One limit that is set.

    Attributes:
        name: Name of its setting, without `budget_`.
        spent: The field of `Spending` that is held against it.
        unit: What is counted, in words.
        limit: The limit, in that unit; above 0.
    """

    name: str
    spent: str
    unit: str
    limit: float


class BudgetSettings(BaseSettings):
    """How much a run may take, and what follows when it takes more. 0 is no limit.

    A limit holds once it is set; once `budget_action` is set, all of them do, with their defaults.
    """

    budget_action: Literal["allow", "hint", "ask", "pause", "abort"] = Field(
        "allow",
        description="What a spent budget leads to; `allow` only notes it on trace and log. A "
        "warning hints at most. Once it is set, all budgets hold; else those that are set (D5).",
    )
    budget_warning: Share = Field(
        0.8, description="Part of a budget at which a warning is given (D5, E1)."
    )
    budget_tighten: float = Field(
        0,
        ge=0,
        le=0.75,
        description="Part by which the thresholds of loops are lowered when a budget that you set "
        "yourself is used up; in proportion before. 0: not at all; from 0.3 on two calls are "
        "enough where three are needed (D12).",
    )
    budget_steps: _Limit = Field(50, description="Steps of a session; 0: no limit (D5).")
    budget_tokens: _Limit = Field(100_000, description="Tokens of a session; 0: no limit (D5).")
    budget_cost: _Amount = Field(0, description="Cost of a session, in USD; 0: no limit (D5).")
    budget_actions: _Limit = Field(500, description="Tool calls of a session; 0: no limit (C10).")
    budget_task_actions: _Limit = Field(
        100, description="Tool calls between two words of the user; 0: no limit (C10)."
    )
    budget_errors: _Limit = Field(10, description="Failed tool calls in a row; 0: no limit (C10).")
    budget_elapsed_s: _Amount = Field(
        3600, description="Seconds between two words of the user; 0: no limit (C10)."
    )
    budget_operation_tokens: _Limit = Field(
        500_000, description="Tokens of a session that are too many for any task; 0: none (C10)."
    )
    budget_phases: _Limit = Field(
        20,
        description="Stretches of work of one agent after the other, between two words of the "
        "user; 0: no limit (E1).",
    )
    budget_checkpoint_every: _Limit = Field(
        25, description="Tool calls after which a checkpoint is advised; 0: never (C10)."
    )
    budget_rate_growth: float = Field(
        3,
        ge=1.7,
        le=100,
        description="How many times as many tokens five model calls must use as the five before, "
        "twice in a row, to be a steep rise (D11).",
    )
    budget_rate_tokens: int = Field(
        8000, ge=0, description="Tokens per model call below which no rise is steep (D11)."
    )
    milestone_steps: int = Field(
        10, ge=1, description="Steps without a milestone that are a stall, once declared (D2)."
    )
    milestone_s: Seconds = Field(
        60, description="Seconds without a milestone that are a stall, once declared (D2)."
    )
    milestone_failed_action: Literal["allow", "hint", "ask", "pause", "abort"] = Field(
        "pause",
        description="What follows when a required milestone failed and none is open (E10).",
    )

    def budgets(self, *, set_only: bool = False) -> tuple[Budget, ...]:
        """The limits that hold: those that somebody set; the defaults are nobody's budget.

        Args:
            set_only: Leaves out the defaults, which hold where `budget_action` is set.
        """
        found = (
            Budget(name, spent, unit, float(getattr(self, f"budget_{name}")))
            for name, (spent, unit) in _BUDGETS.items()
            if self._holds(f"budget_{name}", "" if set_only else "budget_action")
        )
        return tuple(budget for budget in found if budget.limit > 0)

    @property
    def checkpoint_every(self) -> int:
        """Tool calls after which a checkpoint is advised; 0 where nobody asked for it (C10)."""
        holds = self._holds("budget_checkpoint_every", "budget_action")
        return self.budget_checkpoint_every if holds else 0

    @property
    def operation_limit_s(self) -> float:
        """`budget_elapsed_s` where it holds, else 0 (C10)."""
        return self.budget_elapsed_s if self._holds("budget_elapsed_s", "budget_action") else 0

    def _holds(self, *names: str) -> bool:
        return not self.model_fields_set.isdisjoint(names)
