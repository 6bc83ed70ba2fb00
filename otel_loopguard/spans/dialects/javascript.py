"""Agent frameworks of JavaScript with names of their own on spans.

* Genkit 1.42, and 1.4 of Go: `genkit:*`; results are JSON text, of `tool.v2` below `output`. No
  span has a session.
* VoltAgent 2.10: plain keys (`input`, `tool.name`) in a scope of its own. One span stands for all
  model calls of a run, and its tokens are those of the last one: they are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard.core import Kind
from otel_loopguard.spans.messages import assistant_text
from otel_loopguard.spans.steps import begin, captured, failed
from otel_loopguard.spans.values import count, identifier, text, unquoted, within

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.views import SpanView

_ACTIONS: Final = {
    "tool": Kind.TOOL,
    "tool.v2": Kind.TOOL,
    "model": Kind.MODEL,
    "background-model": Kind.MODEL,
    "flow": Kind.WORKFLOW,
    "agent": Kind.AGENT,
}
_TYPES: Final = {"tool": Kind.TOOL, "llm": Kind.MODEL}


class Genkit:
    """Reads spans that have `genkit:type`."""

    name = "genkit"
    marks = frozenset(("genkit:type",))
    scopes = ("genkit-tracer",)
    key_prefixes = ("genkit:",)
    call_words: ClassVar = {
        "genkit:metadata:subtype": frozenset(("tool", "tool.v2", "model", "background-model")),
    }

    def read(self, span: SpanView) -> Step:
        """Step of the span."""
        get = span.attributes.get
        action = text(get("genkit:metadata:subtype"))
        name = text(get("genkit:name")) or span.name
        step = begin(span, _ACTIONS.get(action or "", Kind.OTHER), name)
        given, gave = captured(span, "genkit:input"), captured(span, "genkit:output")
        if step.kind is Kind.TOOL:
            output = within(gave, "output") if action == "tool.v2" else None
            # Beside it there may be parts, such as pictures.
            alone = output is not None and not within(gave, "content")
            step.args, step.outcome = given, output if alone else unquoted(gave)
        elif step.kind is Kind.MODEL:
            step.model = name
            step.tokens_in = count(within(gave, "usage", "inputTokens"))
            step.tokens_out = count(within(gave, "usage", "outputTokens"))
            step.text = assistant_text(within(gave, "message"))
        return failed(step, span)


class VoltAgent:
    """Reads spans of the scope `@voltagent/core`; its keys are too plain to stand alone."""

    name = "voltagent"
    marks = frozenset(("span.type", "voltagent.operation_id"))
    scopes = ("@voltagent/core",)
    key_prefixes = ("entity.", "span.type", "voltagent.")
    call_words: ClassVar = {"span.type": frozenset(_TYPES)}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None of another scope."""
        if span.scope not in self.scopes:
            return None
        get = span.attributes.get
        kind = _TYPES.get(text(get("span.type")) or "", Kind.OTHER)
        if "voltagent.operation_id" in span.attributes:
            kind = Kind.AGENT
        step = begin(span, kind, span.name)
        if get("entity.type") == "agent":
            step.agent = text(get("entity.name"))
        if kind is Kind.TOOL:
            step.name, step.call_id = text(get("tool.name")), identifier(get("tool.call.id"))
            step.args, step.outcome = captured(span, "input"), unquoted(captured(span, "output"))
        elif kind is Kind.MODEL:
            step.name = step.model = text(get("llm.model"))
        return failed(step, span)
