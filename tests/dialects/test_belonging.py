"""Where each pair writes session and agent (notes, §5 and §6.2)."""

from __future__ import annotations

import pytest

from tests.dialects.spans import EXECUTE, TOOL, ended, read

UUID = "67a7ea5c-a4ad-4f45-a9c3-3b8a10c8f3c4"
OPEN_INFERENCE: dict[str, object] = {TOOL: "TOOL", "tool.name": "search"}
SESSIONS: dict[str, tuple[dict[str, object], str, str | None]] = {
    "conversation before session": (
        {**EXECUTE, "session.id": "s", "gen_ai.conversation.id": "c"},
        "x",
        "c",
    ),
    "session.id": ({**OPEN_INFERENCE, "session.id": "s"}, "x", "s"),
    "a number": ({**EXECUTE, "session.id": 42}, "x", "42"),
    "langfuse, quoted": (
        {"langfuse.observation.type": "tool", "langfuse.trace.metadata.thread_id": '"thread-42"'},
        "langfuse-sdk",
        "thread-42",
    ),
    "openllmetry": (
        {
            "traceloop.span.kind": "tool",
            "traceloop.association.properties.thread_id": "t",
            "traceloop.association.properties.session_id": "s",
        },
        "opentelemetry.instrumentation.langchain",
        "s",
    ),
    "langsmith, not the project": (
        {
            "langsmith.span.kind": "tool",
            "langsmith.trace.session_name": "default",
            "langsmith.metadata.thread_id": "t",
        },
        "langsmith",
        "t",
    ),
    "openinference metadata": (
        {**OPEN_INFERENCE, "metadata": '{"thread_id": "t"}'},
        "openinference.instrumentation.langchain",
        "t",
    ),
    "logfire group": (
        {"agent_trace_id": "trace_1", "group_id": "g", "name": "flow"},
        "logfire.openai_agents",
        "g",
    ),
    "vercel": (
        {"ai.operationId": "ai.toolCall", "ai.telemetry.metadata.sessionId": "s"},
        "ai",
        "s",
    ),
    "agent-framework": ({"workflow.id": UUID}, "agent_framework", UUID),
    "crewai": (
        {TOOL: "AGENT", "crew_id": UUID},
        "openinference.instrumentation.crewai",
        UUID,
    ),
    "adk": ({**EXECUTE, "gcp.vertex.agent.session_id": "s"}, "gcp.vertex.agent", "s"),
    "autogen agent": (
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.system": "autogen",
            "gen_ai.agent.id": f"looper_{UUID}/{UUID}",
        },
        "autogen-core",
        UUID,
    ),
    "autogen message": (
        {"messaging.destination": f"group_topic_{UUID}.({UUID})-T"},
        "autogen SingleThreadedAgentRuntime",
        UUID,
    ),
    "autogen team": (
        {TOOL: "CHAIN", "team_id": UUID},
        "openinference.instrumentation.autogen_agentchat",
        UUID,
    ),
    "a written null": ({**EXECUTE, "session.id": "null"}, "x", None),
    "scrubbed": ({**EXECUTE, "session.id": "[Scrubbed due to 'session']"}, "x", None),
    "none": ({**EXECUTE}, "x", None),
}


@pytest.mark.parametrize("case", SESSIONS)
def test_sessions_are_found_where_they_are_written(case: str) -> None:
    """Session ids are read in order of precedence; a trace id is never one."""
    attributes, scope, expected = SESSIONS[case]
    assert read(ended("span", scope, attributes, trace_id=7)).session == expected


AGENTS: dict[str, tuple[dict[str, object], str | None]] = {
    "genai": ({**EXECUTE, "gen_ai.agent.name": "looper"}, "looper"),
    "the constant of v2": ({**EXECUTE, "gen_ai.agent.name": "OpenAI Agent"}, None),
    "after the constant": (
        {**EXECUTE, "gen_ai.agent.name": "OpenAI Agent", "agent.name": "looper"},
        "looper",
    ),
    "openinference": ({**OPEN_INFERENCE, "agent.name": "looper"}, "looper"),
    "crewai role": ({**OPEN_INFERENCE, "tool.agent_role": "looper"}, "looper"),
    "random node id": ({**OPEN_INFERENCE, "graph.node.id": "tool_search_123"}, None),
    "vercel": ({"ai.operationId": "ai.toolCall", "ai.telemetry.functionId": "looper"}, "looper"),
}


@pytest.mark.parametrize("case", AGENTS)
def test_agents_are_found_where_they_are_written(case: str) -> None:
    """The agent's name is read in order of precedence, without names that mean nothing."""
    attributes, expected = AGENTS[case]
    assert read(ended("span", "x", attributes)).agent == expected
