"""What helps after failures: retries, breakers, recovery, checks, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util.lazy import lazy
from otel_loopguard.resilience.breaker import BreakerState, BreakerStatus
from otel_loopguard.resilience.checks import Problem
from otel_loopguard.resilience.registry import (
    breaker,
    breakers,
    checks,
    problems,
    recoveries,
    recovering,
)

if TYPE_CHECKING:
    from otel_loopguard._control.gate import partial, parts
    from otel_loopguard.resilience.builtin_checks import file_exists, permitted, resources, syntax
    from otel_loopguard.resilience.checkpoints import Callbacks, Checkpoint, Checkpoints
    from otel_loopguard.resilience.degradation import (
        Degraded,
        Partial,
        combined,
        degraded,
        degrading,
    )
    from otel_loopguard.resilience.git_workspace import GitWorkspace
    from otel_loopguard.resilience.recovery import Call, longer_limit, reconnect, reread
    from otel_loopguard.resilience.retry import retrying, verified, verified_async

__all__ = [
    "BreakerState", "BreakerStatus", "Call", "Callbacks", "Checkpoint", "Checkpoints",
    "Degraded", "GitWorkspace", "Partial", "Problem", "breaker",
    "breakers", "checks", "combined", "degraded", "degrading", "file_exists", "longer_limit",
    "partial", "parts", "permitted", "problems", "reconnect", "recoveries",
    "recovering", "reread", "resources", "retrying", "syntax", "verified", "verified_async",
]  # fmt: skip

__getattr__ = lazy(
    "otel_loopguard",
    {
        "_control.gate": "partial parts",
        "resilience.builtin_checks": "file_exists permitted resources syntax",
        "resilience.checkpoints": "Callbacks Checkpoint Checkpoints",
        "resilience.degradation": "Degraded Partial combined degraded degrading",
        "resilience.git_workspace": "GitWorkspace",
        "resilience.recovery": "Call longer_limit reconnect reread",
        "resilience.retry": "retrying verified verified_async",
    },
)
