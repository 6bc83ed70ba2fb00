"""Plain values that cross the rooms; no behaviour beyond what they are."""

from otel_loopguard.core.admission import (
    Acceptance,
    Admission,
    Choice,
    Factors,
    Objection,
    Vote,
)
from otel_loopguard.core.annotation import Annotation
from otel_loopguard.core.decision import (
    Action,
    Decision,
    Detection,
    FollowUp,
    Severity,
    Source,
)
from otel_loopguard.core.diagnosis import Diagnosis, Fix, Risk
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence
from otel_loopguard.core.exchange import Exchange
from otel_loopguard.core.milestones import (
    Milestone,
    Milestones,
    Reached,
    SavedMilestones,
    Standing,
)
from otel_loopguard.core.phases import Phase, Phases
from otel_loopguard.core.pressure import UNKNOWN_PRESSURE, Alert, Pressure
from otel_loopguard.core.progress import Progress
from otel_loopguard.core.saying import Gain, Plan, Promise, Saying, Tail
from otel_loopguard.core.spending import AgentSpent, Spending
from otel_loopguard.core.step import Kind, Step
from otel_loopguard.core.visit import Visit

__all__ = [
    "UNKNOWN_PRESSURE",
    "Acceptance",
    "Action",
    "Admission",
    "AgentSpent",
    "Alert",
    "Annotation",
    "Choice",
    "Decision",
    "Detection",
    "Diagnosis",
    "Effect",
    "ErrorClass",
    "Evidence",
    "Exchange",
    "Factors",
    "Fix",
    "FollowUp",
    "Gain",
    "Kind",
    "Milestone",
    "Milestones",
    "Objection",
    "Phase",
    "Phases",
    "Plan",
    "Pressure",
    "Progress",
    "Promise",
    "Reached",
    "Risk",
    "SavedMilestones",
    "Saying",
    "Severity",
    "Source",
    "Spending",
    "Standing",
    "Step",
    "Tail",
    "Visit",
    "Vote",
]
