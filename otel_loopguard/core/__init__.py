"""Plain values that cross the rooms; no behaviour beyond what they are."""

from otel_loopguard.core.annotation import Annotation
from otel_loopguard.core.decision import Action, Decision, Detection, Severity
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence, Handoff
from otel_loopguard.core.step import Kind, Step

__all__ = [
    "Action",
    "Annotation",
    "Decision",
    "Detection",
    "Effect",
    "ErrorClass",
    "Evidence",
    "Handoff",
    "Kind",
    "Severity",
    "Step",
]
