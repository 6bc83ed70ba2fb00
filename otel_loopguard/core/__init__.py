"""Plain values shared by all packages; what is no page's name is imported from its module."""

from __future__ import annotations

from otel_loopguard.core.admission import Acceptance, Admission, Choice
from otel_loopguard.core.decision import Action, Decision, Detection, Diagnosis, Fix
from otel_loopguard.core.milestones import Milestones
from otel_loopguard.core.progress import Remaining
from otel_loopguard.core.step import Kind, Step

__all__ = [
    "Acceptance",
    "Action",
    "Admission",
    "Choice",
    "Decision",
    "Detection",
    "Diagnosis",
    "Fix",
    "Kind",
    "Milestones",
    "Remaining",
    "Step",
]
