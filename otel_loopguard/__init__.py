"""Notices agents that loop, stall or get nowhere, from the OpenTelemetry spans they emit."""

from otel_loopguard import control
from otel_loopguard.control import session
from otel_loopguard.core import Action, Decision
from otel_loopguard.errors import (
    LoopGuardAbort,
    LoopGuardError,
    LoopGuardPaused,
    LoopGuardSettingsError,
    LoopGuardStop,
    RecordingError,
)
from otel_loopguard.exporter import LoopGuardSpanExporter
from otel_loopguard.guard import LoopGuard
from otel_loopguard.processor import LoopGuardSpanProcessor
from otel_loopguard.sampler import LoopGuardSampler
from otel_loopguard.settings import Settings
from otel_loopguard.version import __version__

__all__ = [
    "Action",
    "Decision",
    "LoopGuard",
    "LoopGuardAbort",
    "LoopGuardError",
    "LoopGuardPaused",
    "LoopGuardSampler",
    "LoopGuardSettingsError",
    "LoopGuardSpanExporter",
    "LoopGuardSpanProcessor",
    "LoopGuardStop",
    "RecordingError",
    "Settings",
    "__version__",
    "control",
    "session",
]
