"""Step -> evidence: canonical and masked forms, error classes, effects, epochs."""

from __future__ import annotations

from otel_loopguard.core import Kind
from otel_loopguard.evidence.calls import agent_key
from otel_loopguard.evidence.effects import is_runner
from otel_loopguard.evidence.errors import error_class, signature_of
from otel_loopguard.evidence.extractors import Extractor, Extractors, Factory
from otel_loopguard.evidence.graph import GraphExtractor
from otel_loopguard.evidence.handoffs import HandoffExtractor
from otel_loopguard.evidence.model_text import ModelTextExtractor
from otel_loopguard.evidence.normalize import parsed
from otel_loopguard.evidence.outcomes import prepare
from otel_loopguard.evidence.plans import PlanExtractor, PlanTracker
from otel_loopguard.evidence.tool_calls import Rounds, ToolCallExtractor
from otel_loopguard.evidence.usage import MilestoneExtractor, ModelAttemptExtractor, UsageExtractor

EXTRACTORS: dict[Kind, tuple[Factory, ...]] = {
    Kind.TOOL: (ToolCallExtractor, PlanExtractor, GraphExtractor),
    Kind.MODEL: (
        ToolCallExtractor,
        ModelAttemptExtractor,
        HandoffExtractor,
        ModelTextExtractor,
        PlanExtractor,
        GraphExtractor,
    ),
    Kind.HANDOFF: (HandoffExtractor, ModelTextExtractor, GraphExtractor),
    Kind.NODE: (GraphExtractor,),
    Kind.AGENT: (HandoffExtractor, GraphExtractor),
    Kind.WORKFLOW: (GraphExtractor,),
    Kind.OTHER: (GraphExtractor,),
}
"""What looks at which kind of step, in this order: some read what those before them found."""

# These look at every kind, and last.
EXTRACTORS.update(
    {
        kind: (*EXTRACTORS.get(kind, ()), UsageExtractor, PlanTracker, MilestoneExtractor)
        for kind in Kind
    }
)

__all__ = [
    "EXTRACTORS",
    "Extractor",
    "Extractors",
    "Factory",
    "MilestoneExtractor",
    "Rounds",
    "ToolCallExtractor",
    "UsageExtractor",
    "agent_key",
    "error_class",
    "is_runner",
    "parsed",
    "prepare",
    "signature_of",
]
