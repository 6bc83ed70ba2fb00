"""Agents, nodes, workflows, handoffs, and what only looks like one (notes, §5)."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind
from tests.dialects.spans import TOOL, ended, ended_oi, read

OTHERS = {
    "invoke_agent": (ended("invoke_agent looper", "x", {"gen_ai.operation.name": "invoke_agent"}),
        Kind.AGENT, "looper"),
    "invoke_workflow": (ended("invoke_workflow w", "x",
        {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "flow"}),
        Kind.WORKFLOW, "flow"),
    "workflow named as an agent": (ended("invoke_workflow w", "x",
        {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": "flow"}),
        Kind.WORKFLOW, "flow"),
    "conversation turn": (ended("handle_conversation_turn bot", "x",
        {"gen_ai.operation.name": "handle_conversation_turn"}), Kind.WORKFLOW, "bot"),
    "create_agent": (ended("create_agent a", "x", {"gen_ai.operation.name": "create_agent"}),
        Kind.OTHER, "create_agent a"),
    "openllmetry root twin": (ended("looper.workflow", "opentelemetry.instrumentation.langchain",
        {"traceloop.span.kind": "workflow", "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "looper"}), Kind.AGENT, "looper"),
    "openllmetry node": (ended("execute_task planner", "opentelemetry.instrumentation.langchain",
        {"traceloop.span.kind": "task", "gen_ai.operation.name": "execute_task",
        "gen_ai.task.name": "planner",
        "traceloop.association.properties.langgraph_node": "planner"}), Kind.NODE, "planner"),
    "openllmetry pseudo node": (ended("execute_task RunnableCallable",
        "opentelemetry.instrumentation.langchain", {"traceloop.span.kind": "task",
        "gen_ai.task.name": "RunnableCallable",
        "traceloop.association.properties.langgraph_node": "planner"}), Kind.OTHER,
        "RunnableCallable"),
    "openllmetry asynchronous hook": (ended("execute_task onerr.abefore_model",
        "opentelemetry.instrumentation.langchain", {"gen_ai.operation.name": "execute_task",
        "gen_ai.task.name": "onerr.abefore_model"}), Kind.NODE, "onerr.before_model"),
    "openinference node": (ended_oi("planner", "langchain", {TOOL: "CHAIN",
        "metadata": '{"langgraph_node": "planner"}'}), Kind.NODE, "planner"),
    "openinference node, metadata cut": (ended_oi("planner", "langchain", {TOOL: "CHAIN",
        "metadata": '{"langgraph_node": "planner", "langgraph_path": ["__pre'}), Kind.NODE,
        "planner"),
    "openinference pseudo node": (ended_oi("RunnableCallable", "langchain", {TOOL: "CHAIN",
        "metadata": '{"langgraph_node": "planner"}'}), Kind.OTHER, "RunnableCallable"),
    "langfuse node": (ended("planner", "langfuse-sdk", {"langfuse.observation.type": "chain",
        "langfuse.observation.metadata.langgraph_node": '"planner"'}), Kind.NODE, "planner"),
    "langsmith node": (ended("planner", "langsmith", {"langsmith.span.kind": "chain",
        "langsmith.metadata.langgraph_node": "planner"}), Kind.NODE, "planner"),
    "agent-framework executor": (ended("executor.process planner", "agent_framework",
        {"executor.id": "planner"}), Kind.NODE, "planner"),
    "llama-index step": (ended_oi("BaseWorkflowAgent.call_tool", "llama_index", {TOOL: "CHAIN"}),
        Kind.NODE, "BaseWorkflowAgent.call_tool"),
    "llama-index, no model call": (ended_oi("Fake._prepare_chat_with_tools", "llama_index",
        {TOOL: "LLM", "llm.model_name": "m", "output.value": '{"messages": []}'}), Kind.OTHER,
        "Fake._prepare_chat_with_tools"),
    "smolagents agent": (ended_oi("looper.run", "smolagents", {TOOL: "AGENT",
        "llm.token_count.prompt": 9}), Kind.AGENT, "looper"),
    "smolagents final answer": (ended_oi("FinalAnswerTool", "smolagents", {TOOL: "TOOL",
        "tool.name": "final_answer"}), Kind.OTHER, "final_answer"),
    "adk agent with the attributes of its last model call": (ended("invoke_agent looper",
        "gcp.vertex.agent", {"gen_ai.operation.name": "generate_content",
        "gen_ai.agent.name": "looper", "gcp.vertex.agent.event_id": "e", TOOL: "LLM",
        "llm.token_count.prompt": 100, "gen_ai.usage.input_tokens": 100}), Kind.AGENT, "looper"),
    "adk agent whose own attributes were dropped": (ended("invoke_agent looper",
        "gcp.vertex.agent", {TOOL: "LLM", "llm.token_count.prompt": 100,
        "llm.output_messages.0.message.role": "m"}), Kind.AGENT, "looper"),
    "adk legacy call_llm says again what its child says": (ended("call_llm", "gcp.vertex.agent",
        {"gcp.vertex.agent.event_id": "e", "gen_ai.usage.input_tokens": 100}), Kind.OTHER,
        "call_llm"),
    "mcp client listing": (ended("MCP send tools/list", "mcp-python-sdk",
        {"mcp.method.name": "tools/list"}), Kind.MCP_CLIENT, "tools/list"),
    "mcp server discovery": (ended("server/discover", "mcp-python-sdk",
        {"mcp.method.name": "server/discover"}, kind="SERVER"), Kind.MCP_SERVER,
        "server/discover"),
    "vercel root": (ended("ai.generateText", "ai", {"ai.operationId": "ai.generateText",
        "ai.telemetry.functionId": "looper", "ai.usage.inputTokens": 2310}), Kind.AGENT, "looper"),
}  # fmt: skip


@pytest.mark.parametrize(
    "prompt",
    [
        '{"prompt": "Check page 2"}',
        '{"system": "Be short", "messages": [{"role": "user", "content": "Check page 2"}]}',
        '{"prompt": [{"role": "user", "content": [{"type": "text", "text": "Check page 2"}]}]}',
    ],
    ids=["text", "messages", "messages as the prompt"],
)
def test_a_run_of_the_ai_sdk_says_what_it_was_asked(prompt: str) -> None:
    """Else two runs of one agent are told apart by nothing."""
    step = read(ended("ai.generateText", "ai", {"ai.operationId": "ai.generateText",
        "ai.telemetry.functionId": "checker", "ai.prompt": prompt,
        "ai.response.text": "Fine."}))  # fmt: skip
    assert (step.kind, step.args, step.outcome) == (Kind.AGENT, "Check page 2", "Fine.")


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_tool_call_is_told_apart(case: str) -> None:
    """Agents, nodes, workflows and what only looks like one; none of them carries tokens."""
    span, kind, name = OTHERS[case]
    step = read(span)
    assert (step.kind, step.name) == (kind, name)
    assert step.tokens is None
