"""From detections to decisions: a ladder per loop, hints, diagnoses, preferences."""

from __future__ import annotations

from otel_loopguard.policy.diagnosis import DIAGNOSES, Diagnose, Diagnoser, diagnose, diagnoser
from otel_loopguard.policy.hints import STRATEGIES, alternatives
from otel_loopguard.policy.ladder import RUNGS, UNASKED, Hearing, Loop, Repeat, Verdict
from otel_loopguard.policy.policy import Policy, certainty_of, follow_ups_of, place_of, source_of

__all__ = [
    "DIAGNOSES", "RUNGS", "STRATEGIES", "UNASKED", "Diagnose", "Diagnoser", "Hearing", "Loop",
    "Policy", "Repeat", "Verdict", "alternatives", "certainty_of", "diagnose", "diagnoser",
    "follow_ups_of", "place_of", "source_of",
]  # fmt: skip
