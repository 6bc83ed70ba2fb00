"""Whom a span belongs to: keys of the session and of the agent, first found wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.dialects.values import identifier, revealed

if TYPE_CHECKING:
    from otel_loopguard.dialects.view import SpanView

SESSION_KEYS: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "langfuse.trace.metadata.session_id",
    "langfuse.trace.metadata.thread_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "gcp.vertex.agent.session_id",
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.threadId",
    "ai.telemetry.metadata.conversationId",
    "workflow.id",
    "crew_id",
    "crewai.crew.id",
)
"""Keys of a session id. `langsmith.trace.session_name` is a project and is not one of them."""

AGENT_KEYS: Final = (
    "gen_ai.agent.name",
    "agent.name",
    "tool.agent_role",
    "graph.node.name",
    "traceloop.association.properties.lc_agent_name",
    "langsmith.metadata.lc_agent_name",
    "langfuse.observation.metadata.lc_agent_name",
    "traceloop.workflow.name",
    "ai.telemetry.functionId",
    "crewai.agent.role",
)
"""Keys of the name of an agent."""

NO_AGENT: Final = "OpenAI Agent"
"""What opentelemetry-instrumentation-openai-agents-v2 writes on every span for any agent."""


def session_of(span: SpanView, keys: tuple[str, ...]) -> str | None:
    """Session id that the span carries, under the first of the keys that has one.

    Never a trace id. A scrubbed id would make one session of all: it is unknown.
    """
    attributes = span.attributes
    for key in keys:
        found = identifier(revealed(span, key, attributes.get(key)))
        if found is not None:
            return found
    return None


def agent_of(span: SpanView, keys: tuple[str, ...]) -> str | None:
    """Name of the agent that the span carries, under the first of the keys that has one."""
    attributes = span.attributes
    for key in keys:
        found = identifier(attributes.get(key))
        if found is not None and found != NO_AGENT:
            return found
    return None
