"""The guard: turns spans and steps into decisions."""

from otel_loopguard.guard.guard import LoopGuard

__all__ = ["LoopGuard"]
