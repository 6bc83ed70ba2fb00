"""Settings of the policy: how far it goes, and how soon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds, Share

_LEVELS = frozenset(("hint", "steer", "ask", "deny", "pause"))
_Rounds = Annotated[int, Field(ge=0, le=1000)]


class PolicySettings(BaseSettings):
    """How far the policy goes, and how soon."""

    max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = Field(
        "abort", description="Strongest action that the policy may take."
    )

    sensitivity: float = Field(
        1,
        ge=0.25,
        le=4,
        description="What all thresholds are divided by: above 1 loops are noticed sooner.",
    )
    steer_after: int = Field(
        2,
        ge=0,
        le=100,
        description="Confirming rounds after a hint until another way is asked for.",
    )
    ask_after: int = Field(
        4, ge=0, le=100, description="Confirming rounds after a hint until the user is to be asked."
    )
    deny_after: int = Field(
        1, ge=1, le=100, description="Confirming rounds after a hint until calls are denied."
    )
    pause_after: int = Field(
        1,
        ge=1,
        le=100,
        description="Confirming rounds after a hint until the session is paused, where the agent "
        "is not stuck by its own doing.",
    )
    abort_after: int = Field(
        2, ge=1, le=100, description="Confirming rounds after a hint until the session is aborted."
    )
    forget_after: int = Field(
        24, ge=1, le=1000, description="Calls without the loop after which its ladder is forgotten."
    )
    cooldown_s: Mapping[str, Seconds] = Field(
        {},
        description="Seconds after a level, by its name (JSON in the variable), before the ladder "
        "goes further; where the spans have no times it does not count (C7).",
    )
    cooldown_rounds: Mapping[str, _Rounds] = Field(
        {},
        description="Rounds after a level, by its name (JSON in the variable), that must show the "
        "loop before the ladder goes further (C7).",
    )
    descend_limit: int = Field(
        3,
        ge=0,
        le=1000,
        description="Rungs that one loop may go down again after a success that brought something "
        "new; 0: none (C7).",
    )
    descend_novelty: Share = Field(
        0.3, description="New part of an outcome, 0 to 1, that makes such a success (C7)."
    )
    warning_limit: int = Field(
        0,
        ge=0,
        le=1000,
        description="Different warnings in one turn of the user after which one more aborts the "
        "session; 0: no limit (D8).",
    )
    strategies: Mapping[str, tuple[str, ...]] = Field(
        {},
        description="Other ways to offer a model, by tool or pattern such as `browser_*` (JSON in "
        "the variable); they stand in front of the ones that ship (C7).",
    )
    diagnoser: str = Field(
        "",
        description="Your function for errors of unknown kind, `module:name`; empty: none (C13).",
    )
    pause_limit_s: Seconds = Field(
        60, description="Seconds that a gate waits while the session is paused."
    )

    @field_validator("cooldown_s", "cooldown_rounds")
    @classmethod
    def _known_levels(cls, given: Mapping[str, float]) -> Mapping[str, float]:
        unknown = sorted(given.keys() - _LEVELS)
        if unknown:
            msg = f"unknown level {unknown[0]!r}, expected of {', '.join(sorted(_LEVELS))}"
            raise ValueError(msg)
        return given
