"""The guard: spans and steps come in, decisions go out."""

from otel_loopguard.guard.guard import LoopGuard

__all__ = ["LoopGuard"]
