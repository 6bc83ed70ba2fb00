"""Settings of what comes after a failure: retries, breakers, recovery, checks, checkpoints."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds


class RecoverySettings(BaseSettings):
    """What is done after a failure, or before one."""

    retry_limit: int = Field(
        3, ge=0, le=100, description="Further tries after the first that failed (E4)."
    )
    retry_delay_s: Seconds = Field(
        2,
        description="Seconds before the first further try; each next delay is twice as long (E4).",
    )
    retry_max_delay_s: Seconds = Field(
        30, description="Seconds that a delay between two tries has at most (E4)."
    )
    retry_jitter_s: float = Field(
        0,
        ge=0,
        le=3600,
        description="Seconds, drawn at random up to this, that a delay is longer; so that many "
        "runs do not come back at one moment (E4).",
    )
    breaker_failures: int = Field(
        3, ge=1, le=1000, description="Failures in a row that open a breaker (E5)."
    )
    breaker_open_s: Seconds = Field(
        300, description="Seconds that a breaker stays open before one trial (E5)."
    )
    breaker_trial_s: Seconds = Field(
        60, description="Seconds after which a trial without an outcome makes way for another (E5)."
    )
    breaker_errors: Literal["transient", "unclear", "all"] = Field(
        "transient",
        description="Errors that count: where trying again may help; those and errors of unknown "
        "kind; or wrong arguments and the like too (E5).",
    )
    breaker_sync_s: Seconds = Field(
        1, description="Seconds between two looks at the store for other processes' breakers (E5)."
    )
    recovery_attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="Tries of one recovery strategy in a session and for a tool, until it "
        "succeeds (C9).",
    )
    recovery_check_failures: int = Field(
        3,
        ge=2,
        le=1000,
        description="Failures in a row, of a tool with one kind of arguments and one kind of "
        "error, after which a check warns of the next such call (C14).",
    )
    recovery_check_ttl_s: Seconds = Field(
        600,
        description="Seconds after the last of these failures in which the check warns (C14).",
    )
    recovery_check_learned: Literal["warn", "deny"] = Field(
        "warn",
        description="What follows from what was learned where a call is asked about: a warning, "
        "or a refusal as by registered checks (C14).",
    )
    checkpoint_keep: int = Field(
        20, ge=1, le=10_000, description="Checkpoints that are kept, the newest (C11)."
    )
    checkpoint_limit_s: Seconds = Field(
        60, description="Seconds that one git command of a checkpoint may take (C11)."
    )
