"""Settings of stores: where what outlives a session is kept, how much of it, and how it gets there.

With no `store_url` all of it stays in memory.
"""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds

_WEEK_S = 604_800


class StoreSettings(BaseSettings):
    """Where what outlives a session is kept."""

    store_url: SecretStr = Field(
        SecretStr(""),
        description="Where profiles, journals, controls and preferences are kept: `redis://`, "
        "`rediss://`, `unix://`, `redis+sentinel://HOST:PORT,…/SERVICE`, "
        "`redis+cluster://HOST:PORT,…`; empty: in memory.",
        repr=False,
    )
    store_prefix: str = Field(
        "loopguard",
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="What all keys in the store begin with; letters, digits, `_.:-`.",
    )
    store_timeout_s: Seconds = Field(
        1, description="Seconds that one call of the store may take, and one connection attempt."
    )
    store_slow_s: Seconds = Field(
        0.25, description="Seconds from which a call of the store makes its state `slow`."
    )
    store_queue: int = Field(
        10_000,
        ge=1,
        description="Writes that wait for the store at most; more are dropped and counted (E8).",
    )
    store_queue_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Bytes that wait for the store at most (E8)."
    )
    store_value_bytes: int = Field(
        1024 * 1024, ge=1024, description="Bytes of one value, record or entry at most."
    )
    store_batch: int = Field(
        500, ge=1, le=5000, description="Writes that go to the store together at most."
    )
    store_delay_s: float = Field(
        0.2,
        ge=0,
        le=60,
        description="Seconds that writes are gathered before they go to the store together.",
    )
    store_retry_s: Seconds = Field(
        5, description="Longest pause between two attempts to write, in seconds (E8)."
    )
    store_flush_s: Seconds = Field(
        5, description="Seconds that shutdown waits for what is not written yet (E8)."
    )
    store_records: int = Field(
        100, ge=1, le=10_000, description="Newest records kept of each tool (A1)."
    )
    store_records_ttl_s: Seconds = Field(
        _WEEK_S, description="Seconds that a record of a tool is kept (A1)."
    )
    store_journal_entries: int = Field(
        1000, ge=1, le=10_000, description="Newest journal entries kept of each session (C6)."
    )
    store_journal_ttl_s: Seconds = Field(
        _WEEK_S, description="Seconds that a journal is kept after its last entry (C6)."
    )
    store_memory_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        description="Bytes of journals that the memory store keeps; the one unused for longest "
        "goes first.",
    )
