"""Plain values shared by all packages; what is no page's name is imported from its module."""

from __future__ import annotations

from otel_loopguard.core.admission import Acceptance, Admission, Choice
from otel_loopguard.core.decision import Action, Decision, Detection, Diagnosis, Severity
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.core.progress import Progress, Remaining
from otel_loopguard.core.step import Kind, Step

__all__ = [
    "Acceptance", "Action", "Admission", "Choice", "Decision", "Detection", "Diagnosis", "Evidence",
    "Kind", "Progress", "Remaining", "Severity", "Step",
]  # fmt: skip
