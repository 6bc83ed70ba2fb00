"""Settings of the detectors that look at tool calls."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Count, Seconds, Share


class CallSettings(BaseSettings):
    """What makes a loop of tool calls."""

    repeat_threshold: Count = Field(
        3, description="Equal calls with an equal outcome, in repeats, that make a loop (C1, D1)."
    )
    repeat_window: int = Field(
        50, ge=4, le=1000, description="Calls that repeats are looked for in (C1)."
    )
    cycle_max_period: int = Field(
        16, ge=2, le=64, description="Longest cycle that is looked for, in calls (C3)."
    )
    cycle_repeats: float = Field(
        3, ge=2, le=20, description="Turns that make a cycle of up to three calls (C3)."
    )
    error_threshold: Count = Field(
        3, description="Equal errors of one tool, whatever the arguments, that make a loop (C4)."
    )
    error_rate: Share = Field(
        0.75, description="Part of the newest rounds of calls that failed that is too much (C4)."
    )
    error_rate_rounds: int = Field(
        10, ge=4, le=1000, description="Rounds of calls that `error_rate` looks at (C4)."
    )
    error_streak: int = Field(
        6, ge=2, le=1000, description="Rounds of calls in a row that failed that are too many (C4)."
    )
    similar_threshold: Count = Field(
        5, description="Similar calls that bring nothing new that make a loop (C2)."
    )
    similar_ratio: Share = Field(
        0.85, description="Likeness of two calls' arguments from which they are similar (C2)."
    )
    similar_novelty: Share = Field(
        0.25, description="Part of an outcome that may be new where it counts as nothing new (C2)."
    )
    echo_threshold: Count = Field(
        3, description="Answers that only repeat the call's own arguments that make a loop."
    )
    nothing_threshold: Count = Field(
        4, description="Different calls that find nothing that make a loop."
    )
    verdict_threshold: Count = Field(
        6, description="Equal answers that turn down what was tried that make a loop."
    )
    verdict_climb: Count = Field(
        20, description="Equal answers that turn down what was tried that lead beyond a hint."
    )
    refused_threshold: Count = Field(
        4, description="Rounds in which a call is refused in the same words that make a loop."
    )
    refused_window: int = Field(
        40, ge=4, le=1000, description="Calls that equal refusals are looked for in."
    )
    idle_threshold: Count = Field(
        4, description="Rounds with a command that does nothing that make a loop."
    )
    idle_window: int = Field(
        40, ge=4, le=1000, description="Calls that commands that do nothing are looked for in."
    )
    failure_threshold: Count = Field(
        6, description="Rounds that fail with the same line, across changes, that make a loop."
    )
    failure_steer: Count = Field(
        8, description="Rounds that fail with the same line from which another way is asked for."
    )
    edit_threshold: Count = Field(
        12, description="Edits of one file, each after a failure, that make a loop."
    )
    score_threshold: Count = Field(
        6, description="Tries without a better number under one name that are noted."
    )
    revision_threshold: Count = Field(
        6, description="Calls in a row that revise hardly anything that make a loop."
    )
    sweep_threshold: Count = Field(
        8, description="Places of a range that are read again that make a loop."
    )
    grinding_calls: int = Field(
        20, ge=4, le=1000, description="Calls without anything new that make a loop."
    )
    grinding_novelty: Share = Field(
        0.1, description="Part of their answers that may be new where that is next to nothing."
    )
    transient_budget_s: Seconds = Field(
        60, description="Seconds that transient errors (429, 5xx, timeout) may go on (C4)."
    )
    wait_gap_s: Seconds = Field(
        5, description="Seconds between unchanged answers from which asking again is waiting."
    )
    wait_budget_s: Seconds = Field(
        1800, description="Seconds that waiting for an unchanged answer may go on."
    )
