"""Detections -> decision: a ladder per session, what is done about a loop, and what is known."""

from otel_loopguard.policy.cache import Keeping
from otel_loopguard.policy.diagnoser import Diagnose, Diagnoser, diagnoser
from otel_loopguard.policy.diagnosis import DIAGNOSES, diagnose
from otel_loopguard.policy.execution import Chosen, Execution, Work, execution_follow_ups
from otel_loopguard.policy.ladder import Ladder, Loop, Verdict, at_once
from otel_loopguard.policy.orchestration import certainty_of, follow_ups_of, place_of, source_of
from otel_loopguard.policy.policy import Policy
from otel_loopguard.policy.preferences import Preferences, default_preferences
from otel_loopguard.policy.strategies import STRATEGIES, alternatives
from otel_loopguard.policy.users import Users
from otel_loopguard.policy.warnings import Warnings

__all__ = [
    "DIAGNOSES",
    "STRATEGIES",
    "Chosen",
    "Diagnose",
    "Diagnoser",
    "Execution",
    "Keeping",
    "Ladder",
    "Loop",
    "Policy",
    "Preferences",
    "Users",
    "Verdict",
    "Warnings",
    "Work",
    "alternatives",
    "at_once",
    "certainty_of",
    "default_preferences",
    "diagnose",
    "diagnoser",
    "execution_follow_ups",
    "follow_ups_of",
    "place_of",
    "source_of",
]
