"""Step -> evidence: canonical and masked forms, error classes, effects, epochs."""

from __future__ import annotations

from otel_loopguard.core import Kind
from otel_loopguard.evidence.effects import is_runner
from otel_loopguard.evidence.errors import error_class, signature_of
from otel_loopguard.evidence.extractors import Extractor, Extractors, Factory
from otel_loopguard.evidence.graph import GraphExtractor
from otel_loopguard.evidence.handoffs import HandoffExtractor, agent_key
from otel_loopguard.evidence.model_text import ModelTextExtractor
from otel_loopguard.evidence.normalize import parsed
from otel_loopguard.evidence.plans import Plans, Tasks
from otel_loopguard.evidence.prepare import prepare
from otel_loopguard.evidence.tool_calls import Rounds, ToolCallExtractor
from otel_loopguard.evidence.usage import MilestoneExtractor, UsageExtractor

SENSES: dict[Kind, tuple[Factory, ...]] = {
    Kind.TOOL: (ToolCallExtractor, ModelTextExtractor, Plans, GraphExtractor),
    Kind.MODEL: (ToolCallExtractor, HandoffExtractor, ModelTextExtractor, Plans, GraphExtractor),
    Kind.HANDOFF: (HandoffExtractor, ModelTextExtractor, GraphExtractor),
    Kind.NODE: (GraphExtractor,),
    Kind.AGENT: (HandoffExtractor, GraphExtractor),
    Kind.WORKFLOW: (GraphExtractor,),
    Kind.OTHER: (GraphExtractor,),
}
"""What looks at which kind of step, in this order; one line registers one."""

# These look at every kind, and last: they read what the others counted.
SENSES.update(
    {kind: (*SENSES.get(kind, ()), UsageExtractor, Tasks, MilestoneExtractor) for kind in Kind}
)

__all__ = [
    "SENSES",
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
