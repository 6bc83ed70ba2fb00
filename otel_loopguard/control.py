"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`.

Retries, breakers, recovery, checks and checkpoints are in `otel_loopguard.resilience`; admission
and preferences in `otel_loopguard.execution`; what a session has come to in
`otel_loopguard.sessions`.
"""

from __future__ import annotations

from otel_loopguard._control.callbacks import on_decision
from otel_loopguard._control.context import session
from otel_loopguard._control.escalation import answer, escalate, escalations, on_escalation, plan
from otel_loopguard._control.flag import Control, Flag
from otel_loopguard._control.gate import (
    Gate,
    abort,
    allow,
    check,
    current,
    gate,
    hint,
    pause,
    refused,
    resume,
)
from otel_loopguard._control.limits import cancelling, limit, limited
from otel_loopguard._control.milestones import compacted, milestone, milestones, task_type
from otel_loopguard._control.session_info import explain, remaining, wait_advice
from otel_loopguard.core import Remaining

__all__ = [
    "Control", "Flag", "Gate", "Remaining", "abort", "allow", "answer",
    "cancelling", "check", "compacted", "current", "escalate", "escalations", "explain", "gate",
    "hint", "limit", "limited", "milestone", "milestones", "on_decision", "on_escalation", "pause",
    "plan", "refused", "remaining", "resume", "session", "task_type",
    "wait_advice",
]  # fmt: skip
