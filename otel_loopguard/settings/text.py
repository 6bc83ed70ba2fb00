"""Settings of the detectors that look at what models write, and at tools tried in vain."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds, Share


class TextSettings(BaseSettings):
    """When what a model writes shows that it gets nowhere."""

    text_alike: Share = Field(
        0.85, description="Part of two texts that is common from which they are alike, 0 to 1 (D6)."
    )
    text_refine_times: int = Field(
        3,
        ge=2,
        le=1000,
        description="Times in a row that a text is like the one before, in comparisons (D6).",
    )
    text_refine_chars: int = Field(
        80, ge=1, description="Characters from which a text is compared as a draft (D6)."
    )
    text_news: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Mean novelty of tool answers, 0 to 1, up to which nothing came of them.",
    )
    text_repeat_times: int = Field(
        4, ge=2, le=100, description="Equal texts of one speaker that are a repetition, in texts."
    )
    text_repeat_chars: int = Field(80, ge=1, description="Characters from which equal texts count.")
    text_tail_times: int = Field(
        10, ge=3, le=1000, description="Times that the end of a text repeats itself."
    )
    text_tail_period: int = Field(
        500, ge=1, le=5000, description="Longest repeated end that is looked for, in characters."
    )
    text_tail_chars: int = Field(
        400, ge=50, le=100_000, description="Characters that the repeated end covers at least."
    )
    text_chant_times: int = Field(
        6, ge=3, le=1000, description="Times in a row that a text says the same sentences (W10)."
    )
    text_hedge_turns: int = Field(
        5, ge=2, le=100, description="Texts in a row full of doubt, in texts (D7)."
    )
    text_apology_turns: int = Field(
        3, ge=2, le=100, description="Texts in a row that apologise, in texts (D7)."
    )
    text_scope_turns: int = Field(
        4, ge=2, le=100, description="Times in a row that a plan grows with nothing done (D7)."
    )
    text_shop_tools: int = Field(
        5, ge=3, le=100, description="Different tools tried in vain, in tools (D7)."
    )
    text_shop_calls: int = Field(
        2, ge=1, le=100, description="Calls of one tool up to which it was merely tried (D7)."
    )
    text_talk_turns: int = Field(
        4, ge=2, le=100, description="Texts in a row that announce the same and do nothing."
    )
    text_talk_alike_turns: int = Field(
        6, ge=2, le=100, description="Texts in a row that are alike, announce and do nothing."
    )
    text_talk_other_turns: int = Field(
        10,
        ge=2,
        le=100,
        description="Texts in a row that announce one thing after the other and do none, in texts.",
    )
    text_turn_gap_s: Seconds = Field(
        2, description="Seconds between texts of two traces from which a user may have spoken."
    )
