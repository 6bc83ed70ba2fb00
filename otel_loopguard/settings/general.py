"""Settings of the guard as a whole: whether it acts, and how much it keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Key, Names, Seconds, names_of


class GeneralSettings(BaseSettings):
    """Whether the guard acts, and how much it keeps."""

    enabled: bool = Field(True, description="Switches the whole guard off; spans pass untouched.")
    mode: Literal["guard", "shadow"] = Field(
        "guard",
        description="`guard` decides and raises the flag; `shadow` decides and annotates, and "
        "never raises the flag.",
    )

    max_sessions: int = Field(
        10_000, ge=1, description="Sessions kept; the one unused for longest goes first."
    )
    session_ttl_s: Seconds = Field(
        3600,
        description="Seconds an unused session is kept, if no person stopped it.",
    )
    max_open_steps: int = Field(10_000, ge=1, description="Open spans kept; the oldest goes first.")
    max_value_chars: int = Field(
        1_000_000,
        ge=256,
        description="Characters of arguments or outcome that are compared; of longer text the "
        "ends, and a key of the rest.",
    )
    digest_key: Key = Field(
        SecretStr(""),
        description="Key of the digests that leave the process, of 16 bytes at least; empty: a "
        "random one per process, so that digests compare within it only.",
        repr=False,
    )
    span_events: bool = Field(
        True, description="Adds a span event `loopguard.decision` to open ancestors."
    )

    switched_off: Names = Field(
        frozenset(),
        description="Detectors, or families of them, that are not used (C16).",
    )
    detectors: tuple[str, ...] = Field(
        (),
        description="Detectors of your own: `module:name` of something that makes one from the "
        "settings.",
    )

    _split_names = field_validator("switched_off", mode="before")(names_of)
