"""The guard's own telemetry: metrics and log events."""

from __future__ import annotations

from otel_loopguard.telemetry.emitter import Telemetry
from otel_loopguard.telemetry.metrics import METRICS, Metric, State

__all__ = ["METRICS", "Metric", "State", "Telemetry"]
