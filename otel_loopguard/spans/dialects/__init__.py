"""Span to step: what instrumentations write, read as one kind of step, each call once."""

from __future__ import annotations

from otel_loopguard.spans.dialects.registry import Dialect, register, registered

__all__ = [
    "Dialect",
    "register",
    "registered",
]
