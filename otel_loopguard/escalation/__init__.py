"""People in the loop: what is put before them, by which ways, and what their answers do (C8)."""

from otel_loopguard.core.escalation import Answer, Escalation, Suggestion, totals
from otel_loopguard.escalation.answers import Reply
from otel_loopguard.escalation.channels import KIND, case_row
from otel_loopguard.escalation.escalations import Escalations
from otel_loopguard.escalation.message import message
from otel_loopguard.escalation.register import Case, Register

__all__ = [
    "KIND",
    "Answer",
    "Case",
    "Escalation",
    "Escalations",
    "Register",
    "Reply",
    "Suggestion",
    "case_row",
    "message",
    "totals",
]
