"""Settings of the execution choice: what a run costs, who votes for what, and what is busy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Names, Seconds, Share, names_of

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Tasks = Annotated[int, Field(ge=1, le=10_000)]
_Percent = Annotated[float, Field(gt=0, le=100)]

CONFIDENCES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "time_sync": 0.9,
        "time_background": 0.85,
        "time_no_background": 0.7,
        "time_prompt": 0.8,
        "tasks_prompt": 0.85,
        "tasks_background": 0.9,
        "complexity_prompt": 0.8,
        "sequential_background": 0.75,
        "load_background": 0.75,
        "load_defer": 0.6,
        "queue_sync": 0.7,
        "remembered": 0.65,
        "resources": 0.8,
    }
)
"""How sure each vote is (A4), and a machine that is short of something (A9)."""


class ExecutionSettings(BaseSettings):
    """How a call or a batch is to be executed (A4, A6), and what is busy (A7)."""

    execution_on_spans: bool = Field(
        True,
        description="Writes the execution choice on tool spans that start, where a profile of the "
        "tool is known (A4).",
    )
    execution_prompt_s: Seconds = Field(
        15, description="Seconds below which a call runs at once (A4, A6)."
    )
    execution_background_s: Seconds = Field(
        45, description="Seconds from which a call goes to the background (A4, A6)."
    )
    execution_background: bool = Field(
        True, description="Whether calls may go to the background without a question (A6)."
    )
    execution_remember: bool = Field(
        True, description="Whether a user's answers become a vote on the same tools (A6)."
    )
    execution_parallel: bool = Field(
        True, description="Whether a batch runs in parallel where its calls allow it (A6)."
    )
    execution_default: Literal["", "execute_sync", "prompt_user", "auto_background", "defer"] = (
        Field("", description="The choice where votes tie; empty: the user is asked (A6).")
    )
    execution_notify: bool = Field(
        True, description="Whether the end of a background call is to be told (A6)."
    )
    execution_channels: Names = Field(
        frozenset(), description="Where the end of a background call is told (A6)."
    )
    execution_users: _Tasks = Field(
        1000, description="Users whose preferences and answers are kept in memory (A6)."
    )

    execution_switch_s: _Amount = Field(
        2, description="Seconds added per task of a batch that runs in sequence (A4)."
    )
    execution_parallel_switch_s: _Amount = Field(
        1.5, description="Seconds added per task of a parallel batch, shared by its lanes (A4)."
    )
    execution_max_parallel: _Tasks = Field(3, description="Lanes of a parallel batch (A4).")
    execution_checkpoint_every: _Tasks = Field(5, description="Tasks between checkpoints (A4).")
    execution_checkpoint_s: _Amount = Field(
        10, description="Seconds added per checkpoint of a batch (A4)."
    )
    execution_complexity_s: _Amount = Field(
        5, description="Seconds added for a complexity of 1, in proportion (A4)."
    )

    execution_prompt_tasks: _Tasks = Field(
        15, description="Tasks past which the user is asked (A4)."
    )
    execution_background_tasks: _Tasks = Field(
        25, description="Tasks past which a batch goes to the background (A4)."
    )
    execution_sequential_tasks: _Tasks = Field(
        10, description="Tasks in sequence past which a batch goes to the background (A4)."
    )
    execution_complexity: Share = Field(
        0.7, description="Complexity, 0 to 1, past which the user is asked (A4)."
    )
    execution_load: Share = Field(
        0.8, description="Share of the CPUs past which long calls go to the background (A4)."
    )
    execution_load_s: Seconds = Field(
        30, description="Seconds past which a call is long under load; others wait (A4)."
    )
    execution_queue_busy: _Tasks = Field(
        10, description="Waiting tasks past which a short call rather runs at once (A4)."
    )
    execution_queue_s: Seconds = Field(
        20, description="Seconds below which a call is short where workers are busy (A4)."
    )
    execution_confidence: Mapping[str, Share] = Field(
        {},
        description="How sure single votes are, 0 to 1, by name (JSON in the variable); others "
        "keep their value (A4).",
    )

    execution_resources: bool = Field(
        True, description="Whether CPU, memory, disk and network are measured, in a thread (A7)."
    )
    execution_sample_s: Annotated[float, Field(ge=0.01, le=3600)] = Field(
        1, description="Seconds between two samples of the resources (A7)."
    )
    execution_samples: _Tasks = Field(100, description="Samples of the resources kept (A7).")
    execution_smoothing: _Tasks = Field(
        3, description="Newest samples whose mean is held against the thresholds (A7)."
    )
    execution_cpu_percent: _Percent = Field(
        80, description="Percent of the CPUs in use that is an alert (A7)."
    )
    execution_memory_percent: _Percent = Field(
        85, description="Percent of the memory in use that is an alert (A7)."
    )
    execution_io_wait_percent: _Percent = Field(
        70, description="Percent of CPU time spent waiting for disks that is an alert (A7)."
    )
    execution_queue_depth: _Tasks = Field(
        15, description="Tasks waiting for a worker that are an alert (A7)."
    )
    execution_critical: float = Field(
        1.2,
        ge=1,
        le=10,
        description="How many times its threshold is critical, so that calls wait; of a "
        "percentage at most 98 (A7).",
    )
    execution_queue: str = Field(
        "",
        description="Where tasks wait for workers: `module:function` that gives their number, "
        "`redis://host/0#list`, `celery+redis://host/0#queue` or `rq+redis://host/0#queue`; "
        "empty: nowhere (A7).",
        repr=False,
    )

    _split_channels = field_validator("execution_channels", mode="before")(names_of)

    @field_validator("execution_confidence")
    @classmethod
    def _known_votes(cls, given: Mapping[str, float]) -> Mapping[str, float]:
        unknown = sorted(given.keys() - CONFIDENCES.keys())
        if unknown:
            msg = f"unknown vote {unknown[0]!r}, expected of {', '.join(CONFIDENCES)}"
            raise ValueError(msg)
        return given
