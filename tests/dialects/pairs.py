"""One tool call as each pair of framework and instrumentation writes it (notes, §3)."""

from __future__ import annotations

from tests.dialects.spans import (
    ENVELOPE,
    EXECUTE,
    MESSAGE,
    NOTHING,
    OI,
    PARIS,
    SCHEMA,
    ended,
    ended_oi,
)

CALLS = {
    "genai": ended(
        "execute_tool search",
        "opentelemetry.instrumentation.genai.langchain",
        {**EXECUTE, "gen_ai.tool.call.arguments": PARIS, "gen_ai.tool.call.result": NOTHING},
    ),
    "genai, values as maps": ended(
        "execute_tool search",
        "my.agent",
        {
            **EXECUTE,
            "gen_ai.tool.call.arguments": {"query": "weather in Paris"},
            "gen_ai.tool.call.result": NOTHING,
        },
    ),
    "pydantic-ai v2": ended(
        "running tool",
        "pydantic-ai",
        {**EXECUTE, "tool_arguments": PARIS, "tool_response": NOTHING},
    ),
    "pydantic-ai v4 x openinference": ended(
        "execute_tool search",
        "pydantic-ai",
        {
            **EXECUTE,
            **OI,
            "gen_ai.tool.call.arguments": PARIS,
            "gen_ai.tool.call.result": NOTHING,
            "tool.parameters": PARIS,
            "tool_call.id": "call_0",
            "output.value": NOTHING,
        },
        status="ok",
    ),
    "agent-framework x openinference": ended(
        "execute_tool search",
        "agent_framework",
        {**EXECUTE, **OI, "tool.parameters": PARIS, "output.value": NOTHING},
    ),
    "agno x openinference": ended_oi(
        "search", "agno", {**OI, "tool.parameters": PARIS, "output.value": NOTHING}, status="ok"
    ),
    "autogen x openinference": ended_oi(
        "looper.search",
        "autogen_agentchat",
        {**OI, "tool.parameters": PARIS, "output.value": NOTHING},
    ),
    "crewai x openinference": ended_oi(
        "search.run",
        "crewai",
        {
            **OI,
            "tool.parameters": SCHEMA,
            "tool.cache_function": "<lambda>",
            "output.value": NOTHING,
        },
    ),
    "crewai x openinference, prompt behind the result": ended_oi(
        "search.run",
        "crewai._event_listener",
        {
            **OI,
            "output.value": f"{NOTHING}\n\n\nYou ONLY have access to the following tools, and …",
        },
    ),
    "google-adk x openinference": ended_oi(
        "execute_tool search",
        "google_adk",
        {
            **EXECUTE,
            **OI,
            "gcp.vertex.agent.event_id": "e1",
            "tool.id": "call_0",
            "output.value": '{"id":"call_0","name":"search","response":{"result":"'
            + NOTHING
            + '"}}',
        },
    ),
    "google-adk, content on": ended(
        "execute_tool search",
        "gcp.vertex.agent",
        {
            **EXECUTE,
            "gcp.vertex.agent.event_id": "e1",
            "gen_ai.tool.call.arguments": PARIS,
            "gen_ai.tool.call.result": f'{{"result": "{NOTHING}"}}',
        },
    ),
    "google-adk, legacy schema": ended(
        "execute_tool search",
        "gcp.vertex.agent",
        {
            **EXECUTE,
            "gcp.vertex.agent.tool_call_args": PARIS,
            "gcp.vertex.agent.tool_response": f'{{"result": "{NOTHING}"}}',
        },
    ),
    "strands, events": ended(
        "execute_tool search",
        "strands.telemetry.tracer",
        {**EXECUTE, "gen_ai.event.start_time": "t", "gen_ai.tool.status": "success"},
        events=(
            ("gen_ai.tool.message", {"role": "tool", "content": PARIS, "id": "call_0"}),
            ("gen_ai.choice", {"message": f'[{{"text": "{NOTHING}"}}]', "id": "call_0"}),
        ),
    ),
    "strands, newest names": ended(
        "execute_tool search",
        "strands.telemetry.tracer",
        {
            **EXECUTE,
            "gen_ai.event.start_time": "t",
            "gen_ai.tool.call.arguments": PARIS,
            "gen_ai.tool.call.result": f'[{{"text": "{NOTHING}"}}]',
        },
    ),
    "strands, details event only": ended(
        "execute_tool search",
        "strands.telemetry.tracer",
        {**EXECUTE, "gen_ai.event.start_time": "t"},
        events=(
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.input.messages": '[{"role": "tool", "parts": [{"type": "tool_call", '
                    f'"name": "search", "id": "call_0", "arguments": {PARIS}}}]}}]'
                },
            ),
            (
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.output.messages": '[{"role": "tool", "parts": [{"type": '
                    f'"tool_call_response", "response": [{{"text": "{NOTHING}"}}]}}]}}]'
                },
            ),
        ),
    ),
    "strands x openinference": ended(
        "execute_tool search",
        "strands.telemetry.tracer",
        {**EXECUTE, **OI, "gen_ai.event.start_time": "t", "output.value": NOTHING},
    ),
    "langgraph x openinference": ended_oi(
        "search",
        "langchain",
        {
            **OI,
            "input.value": "weather in Paris",
            "output.value": f'{{"type": "tool", "data": {{{MESSAGE}, "id": null}}}}',
        },
    ),
    "langgraph x openllmetry": ended(
        "execute_tool search",
        "opentelemetry.instrumentation.langchain",
        {
            **EXECUTE,
            "traceloop.span.kind": "tool",
            "gen_ai.tool.call.arguments": ENVELOPE
            + f'"metadata": {{"langgraph_step": 5}}, "inputs": {PARIS}, '
            '"kwargs": {"tool_call_id": "call_0"}}',
            "gen_ai.tool.call.result": f'{{"output": {{"lc": 1, "kwargs": {{{MESSAGE}}}}}, '
            '"kwargs": {"name": "search"}}',
        },
    ),
    "langgraph x openllmetry, arguments cut": ended(
        "execute_tool search",
        "opentelemetry.instrumentation.langchain",
        {
            **EXECUTE,
            "traceloop.span.kind": "tool",
            "gen_ai.tool.call.arguments": ENVELOPE + '"metadata": {"langgraph_st',
            "gen_ai.tool.call.result": f'{{"output": "{NOTHING}"}}',
        },
    ),
    "langgraph x langsmith": ended(
        "search",
        "langsmith",
        {
            **EXECUTE,
            "langsmith.span.kind": "tool",
            "gen_ai.prompt": PARIS,
            "gen_ai.completion": f'{{"output":{{{MESSAGE}}}}}',
        },
    ),
    "langgraph x langfuse": ended(
        "search",
        "langfuse-sdk",
        {
            "langfuse.observation.type": "tool",
            "langfuse.observation.input": PARIS,
            "langfuse.observation.output": f"{{{MESSAGE}}}",
        },
    ),
    "langchain content in blocks": ended_oi(
        "search",
        "langchain",
        {
            **OI,
            "output.value": f'{{"type": "tool", "data": {{"content": [{{"type": "text", "text": '
            f'"{NOTHING}"}}], "tool_call_id": "call_0"}}}}',
        },
    ),
    "openai-agents x openinference": ended_oi(
        "search", "openai_agents", {**OI, "tool.parameters": SCHEMA, "output.value": NOTHING}
    ),
    "openai-agents x openllmetry": ended(
        "search.tool",
        "opentelemetry.instrumentation.openai_agents",
        {
            **EXECUTE,
            "traceloop.span.kind": "tool",
            "gen_ai.tool.call.arguments": PARIS,
            "gen_ai.tool.call.result": NOTHING,
        },
    ),
    "openai-agents x v2": ended(
        "execute_tool search",
        "opentelemetry.instrumentation.openai_agents",
        {
            **EXECUTE,
            "gen_ai.agent.name": "OpenAI Agent",
            "gen_ai.tool.call.arguments": PARIS,
            "gen_ai.tool.call.result": NOTHING,
        },
    ),
    "openai-agents x logfire": ended(
        "Function: {name}",
        "logfire.openai_agents",
        {
            "logfire.msg_template": "Function: {name}",
            "gen_ai.system": "openai",
            "name": "search",
            "input": PARIS,
            "output": NOTHING,
        },
    ),
    "smolagents x openinference": ended_oi(
        "SimpleTool",
        "smolagents",
        {
            **OI,
            "tool.parameters": SCHEMA,
            "input.value": f'{{"args": [], "sanitize_inputs_outputs": true, "kwargs": {PARIS}}}',
            "output.value": NOTHING,
        },
    ),
    "llama-index x openinference": ended_oi(
        "FunctionTool.acall",
        "llama_index",
        {
            **OI,
            "input.value": f'{{"kwargs": {PARIS}}}',
            "output.value": f'{{"blocks":[{{"text":"{NOTHING}"}}],"tool_name":"search"}}',
        },
    ),
    "llama-index x openllmetry": ended(
        "FunctionTool.task",
        "opentelemetry.instrumentation.llamaindex",
        {
            "traceloop.span.kind": "task",
            "traceloop.entity.name": "FunctionTool.task",
            "traceloop.entity.input": f'{{"kwargs": {PARIS}}}',
            "traceloop.entity.output": f'{{"blocks": [{{"text": "{NOTHING}"}}], '
            '"tool_name": "search", "is_error": false}',
        },
    ),
    "agno x openllmetry": ended(
        "search.tool",
        "opentelemetry.instrumentation.agno",
        {
            "traceloop.span.kind": "tool",
            "gen_ai.tool.name": "search",
            "traceloop.entity.input": PARIS,
            "traceloop.entity.output": f"status='success' result='{NOTHING}' error=None "
            "updated_session_state=None images=None",
        },
    ),
    "mcp1 x openllmetry": ended(
        "search.tool",
        "opentelemetry.instrumentation.mcp.instrumentation",
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "search",
            "traceloop.entity.input": f'{{"tool_name": "search", "arguments": {PARIS}}}',
            "traceloop.entity.output": f'{{"result": "{NOTHING}"}}',
        },
    ),
    "vercel": ended(
        "ai.toolCall",
        "ai",
        {
            "ai.operationId": "ai.toolCall",
            "ai.toolCall.name": "search",
            "ai.toolCall.id": "call_0",
            "ai.toolCall.args": PARIS,
            "ai.toolCall.result": f'"{NOTHING}"',
        },
    ),
}
