"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`.

Retries, breakers, recovery, checks and checkpoints are in `otel_loopguard.resilience`; admission
and preferences in `otel_loopguard.execution`; what a session has come to in
`otel_loopguard.sessions`.
"""

from __future__ import annotations

from otel_loopguard._control.context import session
from otel_loopguard._control.escalation import (
    answer,
    escalate,
    escalations,
    on_decision,
    on_escalation,
    plan,
)
from otel_loopguard._control.flag import Control
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
from otel_loopguard._control.limits import cancelling, limit
from otel_loopguard._control.session_info import (
    compacted,
    explain,
    milestone,
    milestones,
    remaining,
    task_type,
    wait_advice,
)
from otel_loopguard.core import Remaining

__all__ = [
    "Control", "Gate", "Remaining", "abort", "allow", "answer",
    "cancelling", "check", "compacted", "current", "escalate", "escalations", "explain", "gate",
    "hint", "limit", "milestone", "milestones", "on_decision", "on_escalation", "pause",
    "plan", "refused", "remaining", "resume", "session", "task_type",
    "wait_advice",
]  # fmt: skip
