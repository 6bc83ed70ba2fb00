"""Settings of the detectors that look at exchanges between agents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Count, Seconds, Share


class ExchangeSettings(BaseSettings):
    """What makes a cycle of agents that pass work back and forth."""

    exchange_window_s: Seconds = Field(
        600, description="Seconds within which exchanges make one cycle (B1)."
    )
    exchange_window_steps: int = Field(
        100,
        ge=4,
        le=10_000,
        description="Steps within which exchanges make one cycle, where there are no times (B1).",
    )
    exchange_overlap: Share = Field(
        0.4,
        description="Part of the different words of two texts that both have, from which they are "
        "on the same topic (B1).",
    )
    exchange_news: Share = Field(
        0.65,
        description="Mean part of new text in what came back, above which exchanges on one topic "
        "are work and no cycle (B1).",
    )
    exchange_low: Count = Field(
        3, description="Exchanges above which a cycle is noticed, of low severity (B2, B3, B4, B5)."
    )
    exchange_medium: Count = Field(
        5, description="Exchanges from which a cycle is of medium severity (B5)."
    )
    exchange_high: Count = Field(
        8, description="Exchanges from which a cycle is of high severity (B5)."
    )
    exchange_critical: Count = Field(
        12, description="Exchanges from which a cycle is of critical severity (B5)."
    )
    exchange_escalate_at: Literal["low", "medium", "high", "critical"] = Field(
        "critical", description="Severity from which a cycle is put before a human (B7)."
    )
    exchange_patience: int = Field(
        4,
        ge=1,
        le=1000,
        description="Exchanges that a cycle may go on after an intervention before it is put "
        "before a human (B7).",
    )
    exchange_repeat_notice: float = Field(
        0.9,
        ge=0.1,
        le=1000,
        description="Hand-offs of the same work to the same agent, each less what came of it, that "
        "are noticed (B4).",
    )
    exchange_repeat_stop: float = Field(
        2.0,
        ge=0.1,
        le=1000,
        description="The same from which it may lead to a pause (B7).",
    )
