"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`."""

from __future__ import annotations

from otel_loopguard._control.callbacks import on_decision, tell_listeners
from otel_loopguard._control.context import Backend, keep, named_session, session
from otel_loopguard._control.escalation import answer, escalate, escalations, on_escalation, plan
from otel_loopguard._control.flag import Control, Flag
from otel_loopguard._control.gate import (
    Gate,
    abort,
    check,
    current,
    gate,
    hint,
    partial,
    parts,
    pause,
    refused,
    resume,
)
from otel_loopguard._control.limits import Limit, cancelling, limit, limited
from otel_loopguard._control.milestones import compacted, milestone, milestones, task_type
from otel_loopguard._control.session_info import cycles, feedback, recall, remember, report
from otel_loopguard.core import Acceptance, Admission, Choice
from otel_loopguard.execution.runtime import (
    acceptance,
    admit,
    admit_batch,
    prefer,
    preferences,
    resource_use,
)
from otel_loopguard.resilience.breaker import BreakerState, Standing
from otel_loopguard.resilience.checkpoints import Callbacks, Checkpoint, Checkpoints
from otel_loopguard.resilience.checks import Problem, file_exists, permitted, resources, syntax
from otel_loopguard.resilience.degraded import Degraded, Partial, combined, degraded, degrading
from otel_loopguard.resilience.git_workspace import GitWorkspace
from otel_loopguard.resilience.recovery import Call, longer_limit, reconnect, reread
from otel_loopguard.resilience.registry import (
    ResilienceRegistry,
    breaker,
    breakers,
    checks,
    offer,
    problems,
    recoveries,
    recovering,
)
from otel_loopguard.resilience.retry import retrying, verified, verified_async

__all__ = [
    "Acceptance",
    "Admission",
    "Backend",
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
    "Limit",
    "Partial",
    "Problem",
    "ResilienceRegistry",
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
