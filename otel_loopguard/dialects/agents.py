"""What is the run of an agent: told by attributes, in one place; by the name only where it must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects.values import begin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.dialects.view import SpanView

RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})
"""The kinds of steps that are a run of an agent, or of several."""

_INVOKES: Final = "invoke_agent "
_GENAI: Final = "genai"
_OTHERS: Final = {
    "gen_ai.operation.name": frozenset(
        (
            "execute_tool",
            "chat",
            "generate_content",
            "text_completion",
            "embeddings",
            "execute_task",
        )
    ),
    "openinference.span.kind": frozenset(
        ("TOOL", "LLM", "RETRIEVER", "EMBEDDING", "RERANKER", "GUARDRAIL", "EVALUATOR", "PROMPT")
    ),
    "traceloop.span.kind": frozenset(("tool", "task")),
    "langfuse.observation.type": frozenset(("tool", "generation", "embedding", "retriever")),
    "langsmith.span.kind": frozenset(("tool", "llm", "retriever")),
    "ai.operationId": frozenset(("ai.toolCall",)),
}
"""What says in one word that a span is no run, so that it need not be read at its start."""
_LATE: Final = (
    "openinference.instrumentation.langchain",
    "openinference.instrumentation.llama_index",
)
"""Instrumentations that say what a span is only when it ends."""
_MESSAGES: Final = "autogen"
"""Its agents run once for each message, in spans of its runtime: never a run by themselves."""
_SDK_TRACES: Final = (
    "openinference.instrumentation.openai_agents",
    "opentelemetry.instrumentation.openai_agents",
    "opentelemetry.instrumentation.genai.openai_agents",
    "logfire.openai_agents",
)
"""Instrumentations of the OpenAI Agents SDK: its trace is a span around any number of runs."""
_TASKS: Final = ("CHAIN", "Task: ")


def is_other(attributes: Mapping[str, object]) -> bool:
    """Whether the attributes say in one word that a span is a call, and no run."""
    for key, words in _OTHERS.items():
        word = attributes.get(key)
        if word is not None and isinstance(word, str) and word in words:
            return True
    return False


def run_by_name(span: SpanView) -> Step | None:
    """A run known by the span's name alone: ADK, Strands and others set attributes only later."""
    if not span.name.startswith(_INVOKES):
        return None
    name = span.name.removeprefix(_INVOKES)
    step = begin(span, Kind.AGENT, name or None, _GENAI)
    step.agent = step.name
    return step


def tells_late(scope: str) -> bool:
    """Whether a span of this scope may turn out to be a run only when it ends."""
    return scope.startswith(_LATE)


def is_message(scope: str) -> bool:
    """Whether agents of this scope run once for each message that they get."""
    return scope.startswith(_MESSAGES)


def holds_runs(span: SpanView) -> bool:
    """Whether a topmost span may be a trace of the OpenAI Agents SDK, around several runs."""
    return span.scope.startswith(_SDK_TRACES)


def is_task(span: SpanView) -> bool:
    """Whether a span right below a trace of the OpenAI Agents SDK is one `Runner.run`."""
    attributes = span.attributes
    if attributes.get("openinference.span.kind") == _TASKS[0]:
        return True
    template = attributes.get("logfire.msg_template")
    return isinstance(template, str) and template.startswith(_TASKS[1])
