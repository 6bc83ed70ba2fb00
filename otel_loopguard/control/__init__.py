"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`."""

from otel_loopguard.control.accounts import cycles, feedback, recall, remember, report
from otel_loopguard.control.admission import (
    acceptance,
    admit,
    admit_batch,
    prefer,
    preferences,
    resource_use,
)
from otel_loopguard.control.breaker import BreakerState, Standing
from otel_loopguard.control.cancelling import cancelling
from otel_loopguard.control.checkpoints import Callbacks, Checkpoint, Checkpoints
from otel_loopguard.control.checks import Problem
from otel_loopguard.control.compaction import compacted
from otel_loopguard.control.context import Keeper, keep, named_session, session
from otel_loopguard.control.degraded import Degraded, Partial, combined, degraded, degrading
from otel_loopguard.control.flag import Control, Flag
from otel_loopguard.control.gate import (
    Gate,
    abort,
    check,
    current,
    gate,
    hint,
    partial,
    parts,
    pause,
    resume,
)
from otel_loopguard.control.limits import Limit, limit, limited
from otel_loopguard.control.listening import on_decision, tell_listeners
from otel_loopguard.control.milestones import milestone, milestones, task_type
from otel_loopguard.control.people import answer, escalate, escalations, on_escalation, plan
from otel_loopguard.control.readymade import file_exists, permitted, resources, syntax
from otel_loopguard.control.refusing import refused
from otel_loopguard.control.remedies import (
    Remedies,
    breaker,
    breakers,
    checks,
    offer,
    problems,
    recoveries,
    recovering,
)
from otel_loopguard.control.retrying import retrying, verified, verified_async
from otel_loopguard.control.strategies import Call, longer_limit, reconnect, reread
from otel_loopguard.control.workspace import GitWorkspace
from otel_loopguard.core import Acceptance, Admission, Choice

__all__ = [
    "Acceptance",
    "Admission",
    "BreakerState",
    "Call",
    "Callbacks",
    "Checkpoint",
    "Checkpoints",
    "Choice",
    "Control",
    "Degraded",
    "Flag",
    "Gate",
    "GitWorkspace",
    "Keeper",
    "Limit",
    "Partial",
    "Problem",
    "Remedies",
    "Standing",
    "abort",
    "acceptance",
    "admit",
    "admit_batch",
    "answer",
    "breaker",
    "breakers",
    "cancelling",
    "check",
    "checks",
    "combined",
    "compacted",
    "current",
    "cycles",
    "degraded",
    "degrading",
    "escalate",
    "escalations",
    "feedback",
    "file_exists",
    "gate",
    "hint",
    "keep",
    "limit",
    "limited",
    "longer_limit",
    "milestone",
    "milestones",
    "named_session",
    "offer",
    "on_decision",
    "on_escalation",
    "partial",
    "parts",
    "pause",
    "permitted",
    "plan",
    "prefer",
    "preferences",
    "problems",
    "recall",
    "reconnect",
    "recoveries",
    "recovering",
    "refused",
    "remember",
    "report",
    "reread",
    "resource_use",
    "resources",
    "resume",
    "retrying",
    "session",
    "syntax",
    "task_type",
    "tell_listeners",
    "verified",
    "verified_async",
]
