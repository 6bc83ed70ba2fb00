"""Detections -> decision: a ladder per session."""

from otel_loopguard.policy.ladder import Ladder, Loop, Verdict

__all__ = ["Ladder", "Loop", "Verdict"]
