"""How each pair says that a call failed (notes, §3)."""

from __future__ import annotations

import pytest

from tests.dialects.spans import BROKEN, EXECUTE, THROWN, TOOL, ended, ended_oi, read

FAILURES = {
    "status and exception": (ended("broken", "x", {**EXECUTE}, status="error", events=THROWN),
        BROKEN, "ValueError"),
    "error.type without an event": (ended("broken", "x", {**EXECUTE, "error.type": "ValueError"},
        status="error"), None, "ValueError"),
    "openinference langchain: repr and traceback": (ended_oi("broken", "langchain", {TOOL: "TOOL",
        "tool.name": "broken"}, status="error",
        description=f"ValueError('{BROKEN}')Traceback (most recent call last):\n\n  File \"x\""),
        f"ValueError('{BROKEN}')", "ValueError"),
    "langsmith: the event says Exception": (ended("broken", "langsmith",
        {"langsmith.span.kind": "tool", "gen_ai.prompt": "{}", "gen_ai.completion": "{}"},
        status="error", events=(("exception", {"exception.type": "Exception",
        "exception.message": ""
        f"ValueError('{BROKEN}')Traceback (most recent call last):"}),)),
        f"ValueError('{BROKEN}')", "ValueError"),
    "langfuse: level": (ended("broken", "langfuse-sdk", {"langfuse.observation.type": "tool",
        "langfuse.observation.level": "ERROR", "langfuse.observation.status_message": BROKEN}),
        BROKEN, None),
    "agno openllmetry: only in the repr, status OK": (ended("broken.tool",
        "opentelemetry.instrumentation.agno", {"traceloop.span.kind": "tool",
        "traceloop.entity.output": f"status='failure' result=None error='{BROKEN}' "
        "updated_session_state=None"}, status="ok"), BROKEN, None),
    "adk: the result is the error": (ended("execute_tool broken", "gcp.vertex.agent", {**EXECUTE,
        "gcp.vertex.agent.event_id": "e", "error.type": "TOOL_ERROR",
        "gen_ai.tool.call.result": f'{{"error": "{BROKEN}"}}'}, status="error",
        description="TOOL_ERROR"), BROKEN, "TOOL_ERROR"),
    "adk default: a code is no text": (ended("execute_tool broken", "gcp.vertex.agent", {**EXECUTE,
        "gcp.vertex.agent.event_id": "e", "error.type": "TOOL_ERROR"}, status="error",
        description="TOOL_ERROR"), None, "TOOL_ERROR"),
    "strands: tool status": (ended("execute_tool broken", "strands.telemetry.tracer", {**EXECUTE,
        "gen_ai.event.start_time": "t", "gen_ai.tool.status": "error",
        "gen_ai.tool.call.result": f'[{{"text": "{BROKEN}"}}]'}), BROKEN, None),
    "mcp1 openllmetry: is_error": (ended("broken.tool",
        "opentelemetry.instrumentation.mcp.instrumentation", {"traceloop.span.kind": "tool",
        "traceloop.entity.output": f'{{"result": "{BROKEN}", "is_error": true}}'}), BROKEN, None),
    "logfire: error attribute": (ended("Function: {name}", "logfire.openai_agents",
        {"gen_ai.system": "openai", "name": "broken",
        "error": '{"message": "Error running tool (non-fatal)", "data": {}}'}),
        "Error running tool (non-fatal)", None),
    "langchain: a message of status error": (ended_oi("broken", "langchain", {TOOL: "TOOL",
        "tool.name": "broken",
        "output.value": f'{{"type": "tool", "data": {{"content": "{BROKEN}", '
        '"tool_call_id": "c", "status": "error"}}'}, status="ok"), BROKEN, None),
    "vercel": (ended("ai.toolCall", "ai", {"ai.operationId": "ai.toolCall",
        "ai.toolCall.name": "broken"}, status="error", description=BROKEN, events=(("exception",
        {"exception.type": "Error", "exception.message": BROKEN}),)), BROKEN, "Error"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_found_where_they_are_written(case: str) -> None:
    """Every way of saying that a call failed is read, with its text and type if there are any."""
    span, said, kind = FAILURES[case]
    step = read(span)
    assert step.error
    assert step.error_text == said
    assert step.error_type == kind


def test_a_handled_exception_is_no_failure() -> None:
    """An exception event on a span whose status is OK was dealt with."""
    assert not read(ended("execute_tool x", "x", {**EXECUTE}, status="ok", events=THROWN)).error


def test_a_retry_of_pydantic_ai_is_a_failure_with_a_result() -> None:
    """`ModelRetry` is an error, and its message to the model is the result."""
    span = ended(
        "execute_tool broken",
        "pydantic-ai",
        {
            **EXECUTE,
            "pydantic_ai.tool.retry.cause": "model_retry",
            "gen_ai.tool.call.result": "try again with x=2",
        },
        status="error",
        events=(("exception", {"exception.type": "ToolRetryError", "exception.message": "x=2"}),),
    )
    step = read(span)
    assert step.error
    assert step.outcome == "try again with x=2"
