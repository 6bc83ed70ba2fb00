"""From detections to decisions: a ladder per session, hints, diagnoses, preferences, prices."""

from __future__ import annotations

from otel_loopguard.policy.diagnosis import DIAGNOSES, Diagnose, Diagnoser, diagnose, diagnoser
from otel_loopguard.policy.hints import STRATEGIES, alternatives
from otel_loopguard.policy.ladder import UNASKED, Hearing, Ladder, Loop, Verdict, at_once
from otel_loopguard.policy.policy import Policy, certainty_of, follow_ups_of, place_of, source_of

__all__ = [
    "DIAGNOSES",
    "STRATEGIES",
    "UNASKED",
    "Diagnose",
    "Diagnoser",
    "Hearing",
    "Ladder",
    "Loop",
    "Policy",
    "Verdict",
    "alternatives",
    "at_once",
    "certainty_of",
    "diagnose",
    "diagnoser",
    "follow_ups_of",
    "place_of",
    "source_of",
]
