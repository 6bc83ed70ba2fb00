"""Handoffs, as each pair writes them (notes, §5.1)."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind
from tests.dialects.spans import TOOL, ended, ended_oi, read

HANDOFFS = {
    "openai-agents x openinference": (ended_oi("handoff to critic", "openai_agents", {TOOL: "TOOL",
        "input.value": "planner", "output.value": "critic"}), ("planner", "critic")),
    "a tool of the conventions' v0.1.0": (ended("execute_tool to_critic", "x",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "to_critic",
        "gen_ai.agent.handoff.source.name": "planner", "gen_ai.agent.handoff.target.name": "critic",
        "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "{}"}),
        ("planner", "critic")),
    "openai-agents x v2": (ended("agent_handoff OpenAI Agent",
        "opentelemetry.instrumentation.openai_agents", {"gen_ai.operation.name": "agent_handoff",
        "gen_ai.agent.name": "OpenAI Agent", "gen_ai.handoff.from_agent": "planner",
        "gen_ai.handoff.to_agent": "critic"}), ("planner", "critic")),
    "openai-agents x openllmetry": (ended("planner → unknown.handoff",
        "opentelemetry.instrumentation.openai_agents", {"traceloop.span.kind": "handoff",
        "gen_ai.operation.name": "handoff", "gen_ai.handoff.from_agent": "planner"}), ("planner",
        None)),
    "openai-agents x logfire": (ended("Handoff: {from_agent} → {to_agent}",
        "logfire.openai_agents", {"logfire.msg_template": "Handoff: {from_agent} → {to_agent}",
        "gen_ai.system": "openai", "from_agent": "planner", "to_agent": "critic"}), ("planner",
        "critic")),
    "adk with arguments": (ended("execute_tool transfer_to_agent", "gcp.vertex.agent",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "transfer_to_agent",
        "gen_ai.agent.name": "planner", "gen_ai.tool.call.arguments": '{"agent_name": "critic"}'}),
        ("planner", "critic")),
    "autogen swarm": (ended("execute_tool transfer_to_critic", "autogen-core",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.system": "autogen",
        "gen_ai.tool.name": "transfer_to_critic"}), (None, "critic")),
    "crewai": (ended_oi("delegate_work_to_coworker.run", "crewai", {TOOL: "TOOL",
        "tool.name": "delegate_work_to_coworker", "tool.agent_role": "planner",
        "input.value": '{"task": "t", "coworker": "critic"}'}), ("planner", "critic")),
}  # fmt: skip


@pytest.mark.parametrize("case", HANDOFFS)
def test_handoffs_say_from_and_to(case: str) -> None:
    """A handoff has the agent it comes from and the one it goes to, as far as they are written."""
    span, expected = HANDOFFS[case]
    step = read(span)
    assert step.kind is Kind.HANDOFF
    assert (step.agent, step.name) == expected
