"""Evidence -> detection: a file per question asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.detectors.cycle import Cycle
from otel_loopguard.detectors.detector import Detector, Factory
from otel_loopguard.detectors.errors import ErrorRepeat
from otel_loopguard.detectors.handoffs import HandoffRepeat
from otel_loopguard.detectors.outage import Outage
from otel_loopguard.detectors.repeat import ExactRepeat
from otel_loopguard.detectors.stagnation import Stagnation
from otel_loopguard.detectors.stall import stalled

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

DETECTORS: tuple[Factory, ...] = (ExactRepeat, Cycle, ErrorRepeat, Stagnation, Outage)
"""Every detector that looks at finished calls; one line registers one."""


def detectors(settings: Settings) -> tuple[Detector, ...]:
    """New detectors for one session."""
    return tuple(make(settings) for make in DETECTORS)


__all__ = ["DETECTORS", "Detector", "Factory", "HandoffRepeat", "detectors", "stalled"]
