"""Plain values shared by all packages; what is no page's name is imported from its module."""

from __future__ import annotations

from otel_loopguard.core.admission import Acceptance, Admission, Choice
from otel_loopguard.core.decision import Action, Decision, Detection, Diagnosis
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
    "Kind",
    "Remaining",
    "Step",
]
