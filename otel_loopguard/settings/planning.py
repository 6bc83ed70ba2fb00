"""Settings of plans: how complex they are, what runs side by side, when work is split."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

_Weight = Annotated[float, Field(ge=0, le=1)]
_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PlanningSettings(BaseSettings):
    """How plans are weighed, grouped and followed."""

    plan_weight_count: _Weight = Field(
        0.3, description="Weight of the number of tasks in the complexity of a plan (A5)."
    )
    plan_weight_tools: _Weight = Field(0.25, description="Weight of the different tools (A5).")
    plan_weight_dependencies: _Weight = Field(0.2, description="Weight of the dependencies (A5).")
    plan_weight_priorities: _Weight = Field(
        0.15, description="Weight of the spread of the priorities (A5)."
    )
    plan_weight_durations: _Weight = Field(
        0.1, description="Weight of how much the durations differ (A5)."
    )
    plan_count_full: int = Field(30, ge=1, description="Tasks that count in full (A5).")
    plan_tools_full: int = Field(10, ge=1, description="Different tools that count in full (A5).")
    plan_dependency_share: _Weight = Field(
        0.1, description="What each dependency adds; ten of them count in full (A5, C12)."
    )
    plan_priority_span: _Scale = Field(
        1,
        description="Distance from the lowest to the highest priority that counts in full; 9 for "
        "priorities from 1 to 10 (A5).",
    )
    plan_max_parallel: int = Field(
        3, ge=1, le=1000, description="Tasks that run side by side at most (A4, E9)."
    )
    plan_assume_safe: bool = Field(
        True,
        description="Takes it that a task may run beside others, where nobody said whether it "
        "may (E9).",
    )
    plan_task_failures: int = Field(
        3,
        ge=1,
        le=100,
        description="Failed steps that name a task, without a successful one in between, after "
        "which the task has failed (E4, E10).",
    )
    plan_split_above: _Weight = Field(
        0.35, description="Complexity from which on it is advised to split a task (C12)."
    )
    plan_split_scope: _Weight = Field(0.25, description="Weight of the scope of a task (C12).")
    plan_split_files: _Weight = Field(0.25, description="Weight of its files (C12).")
    plan_split_dependencies: _Weight = Field(0.2, description="Weight of its dependencies (C12).")
    plan_split_ambiguity: _Weight = Field(0.15, description="Weight of its ambiguity (C12).")
    plan_split_parts: _Weight = Field(
        0.5, description="Least complexity of a task whose words name parts in full (C12)."
    )
    plan_parts_full: int = Field(
        8, ge=1, description="Parts named by a description that count in full (C12)."
    )
    plan_split_testing: _Weight = Field(0.15, description="Weight of tests that lack (C12).")
    plan_scope_full: int = Field(
        8, ge=1, description="Words that ask for work which count in full (C12)."
    )
    plan_files_full: int = Field(10, ge=1, description="Files that count in full (C12).")
    plan_vague_full: int = Field(4, ge=1, description="Vague words that count in full (C12).")
    plan_actions_base: int = Field(
        3, ge=0, description="Actions that every part of a task is estimated at, at least (C12)."
    )
    plan_actions_per_file: int = Field(
        4, ge=0, description="Actions that each file of it adds to the estimate (C12)."
    )
