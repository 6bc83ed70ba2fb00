"""What the guard tells OpenTelemetry of itself: metrics and log events."""

from otel_loopguard.telemetry.metrics import METRICS, Metric
from otel_loopguard.telemetry.state import State
from otel_loopguard.telemetry.telemetry import Telemetry

__all__ = ["METRICS", "Metric", "State", "Telemetry"]
