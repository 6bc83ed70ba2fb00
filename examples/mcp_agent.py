"""A loop that calls a tool of an MCP server for ever, see docs/frameworks.md."""

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.mcp import LoopGuardClient, LoopGuardServerMiddleware

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
server = MCPServer("searcher", middleware=[LoopGuardServerMiddleware()])


@server.tool()
def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


async def loop() -> None:
    async with LoopGuardClient(Client(server)) as client:  # most often it is in another process
        while True:
            await client.call_tool("search", {"query": "weather"})


try:
    asyncio.run(loop())
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
