"""Settings of stalls: how long steps, runs and agents may take before something is said."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds, Share

_Off = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StallSettings(BaseSettings):
    """When something takes too long while it still runs, and what follows. 0 is no limit."""

    step_timeout_s: Seconds = Field(
        60, description="Seconds that one tool call may take before it is a stall (D3)."
    )
    stall_warning: Share = Field(
        0.8, description="Part of a limit in time at which a warning is given (D3, E2)."
    )
    stall_action: Literal["allow", "hint", "ask", "pause", "abort"] = Field(
        "allow",
        description="What a passed limit of a run, an agent or a phase leads to; `allow` only "
        "notes it on trace and log. A warning hints at most (D3, E2).",
    )
    stall_model_s: _Off = Field(
        600, description="Seconds that one model call may take; 0: no limit (D3)."
    )
    stall_idle_s: _Off = Field(
        30, description="Seconds without any step while an agent's run is open; 0: any (D3)."
    )
    stall_run_s: _Off = Field(
        300, description="Seconds that one run of an agent may take; 0: no limit (D3)."
    )
    stall_overall_s: _Off = Field(
        840, description="Seconds that all runs of a session may take; 0: no limit (E2)."
    )
    stall_phase_s: _Off = Field(
        300,
        description="Seconds that one agent of several may be at work before another is; 0: no "
        "limit (E11).",
    )
    stall_health_s: _Off = Field(
        300, description="Seconds between checks of the guard's own state; 0: none (E11)."
    )
    stall_compact_agents: int = Field(
        5,
        ge=0,
        le=1000,
        description="Completed agents after which compacting the context is advised; 0: never "
        "(E13).",
    )
    stall_compact_tokens: int = Field(
        100_000,
        ge=0,
        description="Input tokens of one model call from which compacting is advised; 0: never "
        "(E13).",
    )
    stall_compact_drop: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="Part of its input tokens to which a speaker falls, twice in a row, that is a "
        "compaction: counts are halved; 0: not looked for (E13).",
    )
    stall_compact_least: int = Field(
        8000, ge=0, description="Input tokens from which such a fall counts (E13)."
    )
