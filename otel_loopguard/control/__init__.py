"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`."""

from otel_loopguard.control.accounts import feedback, recall, remember, report
from otel_loopguard.control.context import Keeper, keep, named_session, session
from otel_loopguard.control.flag import Control, Flag
from otel_loopguard.control.gate import Gate, abort, check, current, gate, pause, resume
from otel_loopguard.control.milestones import milestone, milestones

__all__ = [
    "Control",
    "Flag",
    "Gate",
    "Keeper",
    "abort",
    "check",
    "current",
    "feedback",
    "gate",
    "keep",
    "milestone",
    "milestones",
    "named_session",
    "pause",
    "recall",
    "remember",
    "report",
    "resume",
    "session",
]
