"""Human in the loop: escalations, their channels, and the effect of answers."""

from __future__ import annotations

from otel_loopguard.escalation.cases import message

__all__ = ["message"]
