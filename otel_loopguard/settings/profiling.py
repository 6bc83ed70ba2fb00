"""Settings of profiles: how much is kept of each tool, and how estimates come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Names, Seconds, Share, names_of

_Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ProfileSettings(BaseSettings):
    """What is kept of finished calls, and how long the next one may take."""

    profile_max_tools: int = Field(
        1000, ge=1, description="Tools that have a profile; the one unused for longest goes (A1)."
    )
    profile_records: int = Field(
        100, ge=10, le=100, description="Newest calls kept per tool; a store keeps 100 (A1)."
    )
    profile_days: float = Field(
        7, gt=0, le=3650, description="Days that a call is kept in a profile (A1)."
    )
    profile_newest: int = Field(
        50, ge=3, le=100, description="Newest successful calls that an estimate is made from (A2)."
    )
    profile_similar: float = Field(
        2, ge=1, le=1000, description="Arguments up to this many times larger or smaller are alike "
        "(A2)."
    )  # fmt: skip
    profile_min_records: int = Field(
        3, ge=1, le=100, description="Calls of like size from which these weigh (A2)."
    )
    profile_percentile: Share = Field(
        0.9, lt=1, description="Share of calls that an estimate is to hold for, 0 to 1 (A2)."
    )
    profile_prior_records: int = Field(
        10,
        ge=0,
        le=100,
        description="Records at which the default no longer weighs; up to there both are blended. "
        "0: the default alone below `profile_min_records`, the records alone from there (A2).",
    )
    profile_complexity: float = Field(
        0.5,
        ge=0,
        le=10,
        description="How much more the most complex arguments add to an estimate than the "
        "plainest, as a share of it (A2).",
    )
    profile_adapts: float = Field(
        0.15,
        ge=0,
        le=2,
        description="How fast an estimate follows its own misses: log of the factor by which one "
        "miss raises it; 0 leaves it as computed (A2).",
    )
    profile_default_ms: _Milliseconds = Field(
        5000, description="Milliseconds of a call of a tool that nothing is known of (A2)."
    )
    profile_defaults_ms: Mapping[str, _Milliseconds] = Field(
        {},
        description="Milliseconds of your own tools by name (JSON in the variable); they go before "
        "the built-in table (A2).",
    )
    profile_cache_hit: Share = Field(
        0.1,
        description="A repeated identical call that takes at most this share of the median is a "
        "cache hit (A1).",
    )

    profile_parallel_tools: Names = Field(
        frozenset(),
        description="Tools whose calls may run at the same time, beside `read_tools` (A3).",
    )
    profile_max_parallel: int = Field(
        3, ge=1, le=1000, description="Calls that run at the same time in a batch (A3, A4)."
    )

    profile_cpu_percent: float = Field(
        60, ge=0, description="Mean CPU, in %, above which a tool is CPU-intensive (A8)."
    )
    profile_memory_mb: float = Field(
        500, ge=0, description="Mean memory, in MB, above which a tool is memory-intensive (A8)."
    )
    profile_io_percent: float = Field(
        20, ge=0, description="Mean I/O wait, in %, above which a tool is I/O-intensive (A8)."
    )

    profile_stall_factor: float = Field(
        3, ge=1, le=1000, description="Times its estimate after which a call is stalled (D4)."
    )
    profile_stall_records: int = Field(
        20, ge=1, le=100, description="Records of a tool from which its calls can be stalled (D4)."
    )
    profile_stall_min_s: Seconds = Field(
        30, description="Seconds below which no call is stalled, whatever its estimate (D4)."
    )
    profile_limit_factor: float = Field(
        5, ge=1, le=1000, description="Times its estimate that an agent or a call may take (E3)."
    )
    profile_limit_min_s: Seconds = Field(
        30, description="Seconds that an agent or a call may take at least (E3)."
    )
    profile_limit_max_s: Seconds = Field(
        600, description="Seconds that an agent or a call may take at most (E3)."
    )

    _split_parallel = field_validator("profile_parallel_tools", mode="before")(names_of)
