"""What clients and tools may send through the middleware of an MCP server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp_types")
from mcp import Client
from mcp.server import MCPServer
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, NoOpTracer, SpanContext, TraceFlags

from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard.integrations.mcp import LoopGuardServerMiddleware
from tests.agents import provider_with, settle

TEXT = {"content": [{"type": "text", "text": "found"}]}


@pytest.mark.parametrize("meta", [None, {"otel-loopguard/call": {}}, {"otel-loopguard/call": [1]}])
@pytest.mark.parametrize("result", [TEXT, {"content": 5}, {"content": [{"type": "new"}]}, {}])
def test_a_call_is_made_whatever_comes_with_it(
    meta: dict[str, Any] | None, result: dict[str, Any]
) -> None:
    """A client's mark of another form, or the result of an extension, was an error of the call."""

    async def answer(_: object) -> dict[str, Any]:
        return result

    call = SimpleNamespace(
        method="tools/call", request_id=1, meta=meta, session=object(),
        params={"name": "search", "arguments": {}},
    )  # fmt: skip
    assert asyncio.run(LoopGuardServerMiddleware()(call, answer)) == result


def searcher() -> MCPServer:
    """A server whose guard sees what its middleware writes."""
    provider = provider_with(LoopGuardSpanProcessor())
    middleware = LoopGuardServerMiddleware(tracer_provider=provider)
    server = MCPServer("s", middleware=[middleware])
    server.add_tool(search)
    return server


def search(query: str) -> str:
    return "No results."


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's tracer keeps the provider that another test had."""
    monkeypatch.setattr("mcp.shared._otel._tracer", NoOpTracer())


@pytest.mark.usefixtures("untraced")
def test_calls_of_one_connection_are_one_session() -> None:
    """Where neither span nor client says more; what the server calls a session is one request."""
    server = searcher()

    async def ask() -> list[bool]:
        async with Client(server, mode="legacy") as client:
            answers = [await client.call_tool("search", {"query": "x"}) for _ in range(6)]
        async with Client(server, mode="legacy") as client:
            answers.append(await client.call_tool("search", {"query": "x"}))
        return [answer.is_error for answer in answers]

    assert asyncio.run(ask()) == [False, False, False, False, True, True, False]


@pytest.mark.parametrize(("by_client", "refused"), [(False, True), (True, False)])
def test_calls_that_are_each_a_trace_of_the_server_are_of_the_connection(
    *, by_client: bool, refused: bool
) -> None:
    """A plain client sends no trace; what one that does calls alone is left to its traces."""
    provider = provider_with(LoopGuardSpanProcessor())
    tracer, middleware = provider.get_tracer("mcp-python-sdk"), LoopGuardServerMiddleware()
    named = {
        "mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
    }  # fmt: skip
    connection = SimpleNamespace(has_standalone_channel=True, outbound=object())
    made = 0

    async def answer(_: object) -> dict[str, Any]:
        nonlocal made
        made += 1
        return {"content": [{"type": "text", "text": "No results."}]}

    for number in range(10):
        call = SimpleNamespace(
            method="tools/call", request_id=number, meta=None,
            params={"name": "search", "arguments": {"query": "x"}},
            session=SimpleNamespace(_connection=connection),
        )  # fmt: skip
        above = remote() if by_client else Context()
        with tracer.start_as_current_span("tools/call search", above, attributes=named):
            asyncio.run(middleware(call, answer))
        settle()
    assert (made < 10) is refused


def remote() -> Context:
    """The context of a client's span, which came along, of a trace that no other test has."""
    ids, flags = RandomIdGenerator(), TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(
        ids.generate_trace_id(), ids.generate_span_id(), is_remote=True, trace_flags=flags
    )
    return trace.set_span_in_context(NonRecordingSpan(context), Context())


@pytest.mark.usefixtures("untraced")
def test_requests_that_nothing_joins_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    server = searcher()

    async def ask() -> None:
        async with Client(server) as client:
            for _ in range(6):
                assert not (await client.call_tool("search", {"query": "x"})).is_error

    asyncio.run(ask())
    (said,) = [each for each in caplog.records if hasattr(each, "blind")]
    assert "LoopGuardClient" in said.getMessage()
