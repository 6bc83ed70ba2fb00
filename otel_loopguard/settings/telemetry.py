"""Settings of what the guard tells OpenTelemetry of itself: metrics, log events, links."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class TelemetrySettings(BaseSettings):
    """What is counted and told, and how much of it there may be."""

    telemetry_metrics: bool = Field(
        True, description="Counts for OpenTelemetry's metrics, where a meter provider is set (O3)."
    )
    telemetry_events: bool = Field(
        True,
        description="Emits OpenTelemetry log events for decisions, escalations and cycles, where a "
        "logger provider is set (O3, A11, B8).",
    )
    telemetry_sample: int = Field(
        64,
        ge=1,
        le=1_000_000,
        description="Of so many ended spans one is timed, and of so many calls one estimate is "
        "compared with what it came to; the first 64 all are (A10).",
    )
    telemetry_agents: int = Field(
        100,
        ge=1,
        le=1000,
        description="Different names of agents on metrics; all others are `other` (O3).",
    )
    telemetry_tools: int = Field(
        200,
        ge=1,
        le=900,
        description="Different names of tools on metrics; all others are `other` (O3).",
    )
    telemetry_zero_agents: int = Field(
        20,
        ge=0,
        le=40,
        description="Named agents whose aborts are reported as 0 before the first, so that the "
        "first alerts (O3).",
    )
    telemetry_queue: int = Field(
        1024,
        ge=1,
        le=100_000,
        description="Log events that wait to be emitted; past that they are dropped and counted "
        "(O3).",
    )
    telemetry_flush_s: float = Field(
        1.0,
        ge=0,
        le=60,
        description="Seconds that a shutdown waits for log events that are not emitted yet (O3).",
    )
    telemetry_links: int = Field(
        8,
        ge=0,
        le=32,
        description="Span links from a deciding span to the first steps of its loop (O2).",
    )
    decision_spans: bool = Field(
        True,
        description="Makes a span of its own for a decision that is on no other: no span is open "
        "above, and no `LoopGuardSpanExporter` writes it on the ended one (O2).",
    )
