"""Settings of what is put before people: when, by which way, and what follows without an answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Names, Seconds, SigningKey, names_of

_REASONS = frozenset({"pause", "ask", "cycle"})


class EscalationSettings(BaseSettings):
    """What is put before people, and by which way."""

    escalate_on: Names = Field(
        _REASONS,
        description="Decisions that are put before people, of `pause`, `ask` and `cycle` (a cycle "
        "of agents that goes on after an intervention); empty: none (B7, C8).",
    )
    escalate_severity: Literal["none", "warning", "critical", "fatal"] = Field(
        "none",
        description="Severity from which every other decision is put before people too (B7).",
    )
    escalation_fallback: Literal["skip_task", "continue", "abort", "wait"] = Field(
        "skip_task",
        description="What follows where nobody answered for `pause_limit_s` seconds; `wait`: the "
        "session stays paused (C8).",
    )
    escalation_cooldown_s: float = Field(
        300,
        ge=0,
        le=604_800,
        description="Seconds after a message about a session in which people are not told the "
        "same again; what the policy does is not changed by it (C8).",
    )
    escalation_actions: int = Field(
        5, ge=1, le=50, description="Last actions of the session that an escalation shows (C8)."
    )
    escalation_content: bool = Field(
        False,
        description="Shows the arguments of these actions, at most 200 characters of each, to "
        "those who are asked (C8).",
    )
    escalation_queue: int = Field(
        256,
        ge=1,
        le=100_000,
        description="Escalations that wait for one channel at most; more are dropped and counted.",
    )

    webhook_url: SecretStr = Field(
        SecretStr(""),
        description="Address (`http://` or `https://`) that escalations are posted to; empty: "
        "none. Needs the extra `webhook` (C8).",
        repr=False,
    )
    webhook_secret: SigningKey = Field(
        SecretStr(""),
        description="Secret that posts are signed with (HMAC-SHA256, Standard Webhooks), of 16 "
        "bytes at least: a text, or `whsec_` and Base64; empty: not signed (C8).",
        repr=False,
    )
    webhook_timeout_s: Seconds = Field(
        10, description="Seconds that one post may take, its answer included (C8)."
    )
    webhook_attempts: int = Field(
        5, ge=1, le=100, description="Posts of one escalation at most, until one goes well (C8)."
    )
    webhook_retry_s: Seconds = Field(
        1,
        description="Seconds between the first two posts; each next pause is twice as long, and "
        "60 at most (C8).",
    )

    _split_reasons = field_validator("escalate_on", mode="before")(names_of)

    @field_validator("escalate_on")
    @classmethod
    def _known_reasons(cls, given: frozenset[str]) -> frozenset[str]:
        unknown = sorted(given - _REASONS)
        if unknown:
            msg = f"unknown reason {unknown[0]!r}, expected of {', '.join(sorted(_REASONS))}"
            raise ValueError(msg)
        return given
