"""Settings of the judge: a model of the user's that is asked when weak signs persist."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds, Share


class JudgeSettings(BaseSettings):
    """Who judges, when it is asked, and what may follow (D15)."""

    judge: str = Field(
        "",
        description="Your judge, `module:name` of a callable; empty: none. Replays of recorded "
        "runs do not ask it (D15).",
    )
    judge_from_step: int = Field(
        30, ge=1, le=100_000, description="Step of a session from which the judge is asked (D15)."
    )
    judge_every_min: int = Field(
        5, ge=1, le=1000, description="Steps between two questions while it is sure (D15)."
    )
    judge_every_max: int = Field(
        15, ge=1, le=1000, description="Steps between two questions while it sees no trouble (D15)."
    )
    judge_patience: int = Field(
        10, ge=1, le=1000, description="Steps in a row that show weak signs before it is asked."
    )
    judge_confidence: Share = Field(
        0.9, description="Confidence from which its opinion counts, 0 to 1 (D15)."
    )
    judge_times: int = Field(
        2, ge=1, le=20, description="Confident opinions in a row that make a detection (D15)."
    )
    judge_timeout_s: Seconds = Field(
        30, description="Seconds that it may take to answer; later answers do not count."
    )
    judge_queue: int = Field(
        16, ge=1, le=1000, description="Questions that wait at most; further ones are not asked."
    )
    judge_max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = Field(
        "ask", description="Strongest action that its opinion may lead to."
    )
