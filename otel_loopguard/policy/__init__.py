"""Detections -> decision: a ladder per session, what is done about a loop, and what is known."""

from otel_loopguard.policy.diagnoser import Diagnose, Diagnoser, diagnoser
from otel_loopguard.policy.diagnosis import DIAGNOSES, diagnose
from otel_loopguard.policy.ladder import Ladder, Loop, Verdict, at_once
from otel_loopguard.policy.orchestration import certainty_of, follow_ups_of, place_of, source_of
from otel_loopguard.policy.policy import Policy
from otel_loopguard.policy.strategies import STRATEGIES, alternatives
from otel_loopguard.policy.warnings import Warnings

__all__ = [
    "DIAGNOSES",
    "STRATEGIES",
    "Diagnose",
    "Diagnoser",
    "Ladder",
    "Loop",
    "Policy",
    "Verdict",
    "Warnings",
    "alternatives",
    "at_once",
    "certainty_of",
    "diagnose",
    "diagnoser",
    "follow_ups_of",
    "place_of",
    "source_of",
]
