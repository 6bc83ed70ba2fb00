"""What is known of tools from past calls: profiles, estimates, limits."""

from otel_loopguard.profiling.batch import BatchEstimate, PlannedCall
from otel_loopguard.profiling.complexity import Arguments, measure
from otel_loopguard.profiling.estimate import Estimate, Knowledge
from otel_loopguard.profiling.profile import Summary
from otel_loopguard.profiling.profiler import AGENT, Profiler
from otel_loopguard.profiling.queues import queue_depth
from otel_loopguard.profiling.record import CallRecord
from otel_loopguard.profiling.resource_profile import ResourceProfile
from otel_loopguard.profiling.resources import Resources, Use
from otel_loopguard.profiling.sample import ResourceSample

__all__ = [
    "AGENT",
    "Arguments",
    "BatchEstimate",
    "CallRecord",
    "Estimate",
    "Knowledge",
    "PlannedCall",
    "Profiler",
    "ResourceProfile",
    "ResourceSample",
    "Resources",
    "Summary",
    "Use",
    "measure",
    "queue_depth",
]
