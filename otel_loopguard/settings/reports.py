"""Settings of what a session keeps for people: its report and its long-term context."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class ReportSettings(BaseSettings):
    """How much a report lists, and what a hint may say of what was learned before."""

    report_tools: int = Field(
        10, ge=1, le=48, description="Tools that a report lists, the most used first (C6)."
    )
    report_alerts: int = Field(
        10, ge=0, le=100, description="Alerts that a report holds in full, the newest (D9)."
    )
    context_entries: int = Field(
        12,
        ge=0,
        le=100,
        description="Entries of each kind that the long-term context of a session keeps (C17).",
    )
    context_in_hints: bool = Field(
        True,
        description="Offers the long-term context in hints; a hint may then have content of "
        "calls, which stays in the process (C17).",
    )
