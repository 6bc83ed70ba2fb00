"""Microsoft Agent Framework: workflows and their executors. Its agents write GenAI names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.errors import failed
from otel_loopguard.spans.values import begin, text

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "agent-framework"

_SCOPE = "agent_framework"


class AgentFramework:
    """Reads `workflow.run` and `executor.process` spans of the scope `agent_framework`."""

    name = NAME
    marks = frozenset(("executor.id", "workflow.id"))
    scopes = ("agent_framework*", "agent-framework*")
    fallback_session_keys = ("workflow.id",)
    key_prefixes = ()

    def read(self, span: SpanView) -> Step | None:
        """A graph node for an executor, a workflow for its run, else None."""
        if not span.scope.startswith(_SCOPE):
            return None
        executor = text(span.attributes.get("executor.id"))
        if executor is not None:
            step = begin(span, Kind.NODE, executor, NAME)
            step.node = executor
        else:
            kind = Kind.WORKFLOW if span.name.startswith("workflow.run") else Kind.OTHER
            name = text(span.attributes.get("workflow.name"))
            step = begin(span, kind, name or span.name, NAME)
        return failed(step, span)
