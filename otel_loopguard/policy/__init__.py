"""Detections -> decision: a ladder per session."""

from otel_loopguard.policy.ladder import Ladder, Loop, Verdict, hint_once

__all__ = ["Ladder", "Loop", "Verdict", "hint_once"]
