"""Is a call running longer than it may? (D3) Asked by the timer, while the call runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action, Detection, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

NAME = "stall"


def stalled(settings: Settings, tool: str, key: int, running_s: float) -> Detection | None:
    """A warning from `stall_warning` (80 %) of `step_timeout_s` (60 s) on, critical past the limit.

    It leads to a hint at most: a slow build is slow, not stuck, and nobody can tell from outside.

    Args:
        settings: Settings of the guard.
        tool: Name of the tool.
        key: Identity of the running step.
        running_s: Seconds since it started.
    """
    limit = settings.step_timeout_s
    if running_s < limit * settings.stall_warning:
        return None
    over = running_s >= limit
    return Detection(
        detector=NAME,
        reason="step_timeout" if over else "step_timeout_near",
        severity=Severity.CRITICAL if over else Severity.WARNING,
        confidence=0.6 if over else 0.4,
        keys=frozenset({key}),
        count=round(running_s, 3),
        threshold=limit if over else limit * settings.stall_warning,
        message=f"{tool[:200]!r} has been running for {running_s:.1f} s; its limit is {limit:g} s",
        max_action=Action.HINT,
    )
