"""Settings of the journal: what a session leaves behind for other processes, and for a restart."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds


class JournalSettings(BaseSettings):
    """How much of a session is kept as compact entries, and when they are written and read."""

    journal_steps: int = Field(
        1000, ge=16, le=100_000, description="Newest entries of a session that are kept (C6)."
    )
    journal_flush_steps: int = Field(
        100, ge=1, le=10_000, description="Entries after which a session's are written (C6)."
    )
    journal_flush_s: Seconds = Field(
        1.0, description="Seconds after which entries are written at the latest (C6)."
    )
    journal_read_s: Seconds = Field(
        5.0,
        description="Seconds between two looks at what other processes wrote of a session that is "
        "in use (C6).",
    )
