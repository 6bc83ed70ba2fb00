"""The control flag, for the agent's own loop: `control.check()`, `await control.gate()`.

Retries, breakers, recovery, checks and checkpoints are in `otel_loopguard.resilience`; admission
and preferences in `otel_loopguard.execution`; what a session has come to in
`otel_loopguard.sessions`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

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
from otel_loopguard._util.moved import warn_moved
from otel_loopguard.core import Remaining

__all__ = [
    "Control", "Flag", "Gate", "Remaining", "abort", "allow", "answer",
    "cancelling", "check", "compacted", "current", "escalate", "escalations", "explain", "gate",
    "hint", "limit", "limited", "milestone", "milestones", "on_decision", "on_escalation", "pause",
    "plan", "refused", "remaining", "resume", "session", "task_type",
    "wait_advice",
]  # fmt: skip

_MOVED: Final = {
    "execution": (
        "Acceptance", "Admission", "Choice", "acceptance", "admit", "admit_batch", "prefer",
        "preferences", "resource_use",
    ),
    "resilience": (
        "BreakerState", "Call", "Callbacks", "Checkpoint", "Checkpoints", "Degraded",
        "GitWorkspace", "Partial", "Problem", "Remedies", "Standing", "breaker", "breakers",
        "checks", "combined", "degraded", "degrading", "file_exists", "longer_limit", "offer",
        "partial", "parts", "permitted", "problems", "reconnect", "recoveries", "recovering",
        "reread", "resources", "retrying", "syntax", "verified", "verified_async",
    ),
    "sessions": ("cycles", "feedback", "named_session", "recall", "remember", "report"),
}  # fmt: skip
"""Names that were here in 0.3, by the namespace that has them now."""

_RENAMED: Final = {"Remedies": "ResilienceRegistry", "Standing": "BreakerStatus"}


def __getattr__(name: str) -> Any:
    for namespace, names in _MOVED.items():
        if name in names:
            new = f"otel_loopguard.{namespace}"
            warn_moved(f"{__name__}.{name}", f"{new}.{_RENAMED.get(name, name)}", 3)
            return getattr(importlib.import_module(new), _RENAMED.get(name, name))
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
