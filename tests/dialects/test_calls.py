"""Tool calls, span by span as each pair writes them (notes, §3 and §4)."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.spans.views import RecordedSpan
from tests.dialects.pairs import CALLS
from tests.dialects.spans import (
    EXECUTE,
    NOTHING,
    OI,
    PARIS,
    ended,
    read,
)


@pytest.mark.parametrize("pair", CALLS)
def test_a_call_is_read_alike_in_all_dialects(pair: str) -> None:
    """Name, arguments and result of one call are the same whoever wrote its span."""
    step = read(CALLS[pair])
    assert step.kind is Kind.TOOL
    assert step.name == "search"
    assert step.args in (PARIS, {"query": "weather in Paris"}, "weather in Paris")
    assert step.outcome == NOTHING
    assert not step.error
    assert step.lacks == ()
    assert step.call_id in ("call_0", None)
    assert (step.start, step.end) == (1, 9)


NAME_ONLY = {
    "autogen native": ended(
        "execute_tool search", "autogen-core", {**EXECUTE, "gen_ai.system": "autogen"}
    ),
    "google-adk default": ended(
        "execute_tool search", "gcp.vertex.agent", {**EXECUTE, "gcp.vertex.agent.event_id": "e"}
    ),
    "mcp server": ended(
        "tools/call search",
        "mcp-python-sdk",
        {**EXECUTE, "mcp.method.name": "tools/call"},
        kind="SERVER",
    ),
    "mcp client": ended(
        "MCP send tools/call search",
        "mcp-python-sdk",
        {"mcp.method.name": "tools/call", "jsonrpc.request.id": 2},
        kind="CLIENT",
    ),
    "name of the span alone": ended("execute_tool search", "gcp.vertex.agent", {}),
}


@pytest.mark.parametrize("pair", NAME_ONLY)
def test_a_degraded_call_says_what_it_lacks(pair: str) -> None:
    """Without content a call still has its name, and the rest is unknown."""
    step = read(NAME_ONLY[pair])
    assert (step.kind, step.name) == (Kind.TOOL, "search")
    assert step.lacks == ("args", "outcome")
    assert step.server == (pair == "mcp server")


STARTED = {
    "pydantic-ai": (RecordedSpan(name="execute_tool search", attributes={**EXECUTE}), "search"),
    "agno x openinference": (RecordedSpan(name="search", attributes={**OI}), "search"),
    "adk": (RecordedSpan(name="execute_tool search", scope="gcp.vertex.agent"), "search"),
    "mcp client": (
        RecordedSpan(
            name="MCP send tools/call search",
            kind="CLIENT",
            attributes={"mcp.method.name": "tools/call"},
        ),
        "search",
    ),
    "vercel": (
        RecordedSpan(
            name="ai.toolCall",
            attributes={"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search"},
        ),
        "search",
    ),
    "logfire, values still null": (
        RecordedSpan(
            name="Function: {name}",
            scope="logfire.openai_agents",
            attributes={"gen_ai.system": "openai", "name": "search", "input": "null"},
        ),
        "search",
    ),
}


@pytest.mark.parametrize("case", STARTED)
def test_a_call_is_known_when_it_starts(case: str) -> None:
    """A span that just started is a call with a name, if its instrumentation has set it by then."""
    span, name = STARTED[case]
    step = read(span)
    assert (step.kind, step.name, step.end) == (Kind.TOOL, name, None)
    assert step.outcome is None
    assert not step.error
