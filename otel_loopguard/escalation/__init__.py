"""Human in the loop: escalations, their channels, and the effect of answers."""

from __future__ import annotations

from otel_loopguard.escalation.answers import Reply
from otel_loopguard.escalation.channels import KIND, case_row
from otel_loopguard.escalation.escalations import Escalations
from otel_loopguard.escalation.payload import message
from otel_loopguard.escalation.registry import Case, EscalationRegistry

__all__ = [
    "KIND",
    "Case",
    "EscalationRegistry",
    "Escalations",
    "Reply",
    "case_row",
    "message",
]
