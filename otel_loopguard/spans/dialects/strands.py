"""Strands Agents: GenAI names, values in events; results are blocks (`[{"text": …}]`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.errors import fail
from otel_loopguard.spans.values import texts

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "strands"

_CYCLE = "execute_event_loop_cycle"


class Strands:
    """Reads spans that have `gen_ai.event.start_time`."""

    name = NAME
    marks = frozenset(("gen_ai.event.start_time",))
    builds_on = genai.NAME
    scopes = ("strands.*",)
    key_prefixes = ()

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without an operation."""
        step = genai.read(span, NAME)
        if step is None:
            return None
        if step.kind is Kind.TOOL:
            step.outcome = texts(step.outcome)
            if span.attributes.get("gen_ai.tool.status") == "error":
                fail(step, step.outcome)
        elif span.attributes.get("gen_ai.operation.name") == _CYCLE:
            step.kind, step.name, step.node = Kind.NODE, _CYCLE, _CYCLE
        return step
