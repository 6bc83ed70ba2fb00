"""Plain values shared by all packages; what is no page's name is imported from its module."""

from __future__ import annotations

from otel_loopguard.core.decision import Action, Choice, Decision, Detection, Diagnosis, Severity
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.core.progress import Progress, Remaining
from otel_loopguard.core.step import Kind, Step

__all__ = [
    "Action", "Choice", "Decision", "Detection", "Diagnosis", "Evidence",
    "Kind", "Progress", "Remaining", "Severity", "Step",
]  # fmt: skip
