"""An agent's loop over a client and a server of MCP; see tests/frameworks/scripted.py.

The SDK writes spans itself, as soon as there is a tracer provider, without arguments and results:
here that of the server, which is in this process, in the trace of the agent's span. In the variant
without them the client's adapter writes them.
"""

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace

from otel_loopguard.integrations.mcp import LoopGuardClient, LoopGuardServerMiddleware
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("mcp", "mcp", native=True)
# Where the server's spans are those of this process, the client needs none.
options = {"tracer_provider": run.provider, "spans": None if run.bare else False}
server = MCPServer("searcher", middleware=[LoopGuardServerMiddleware(tracer_provider=run.provider)])


@server.tool()
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


async def loop():
    told = [QUESTION]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "looper"}
    async with LoopGuardClient(Client(server), **options) as client:
        with trace.get_tracer("agent").start_as_current_span("invoke_agent", attributes=agent):
            while call := await asyncio.to_thread(run.asked, told):
                result = await client.call_tool(call.tool, call.args)
                told.extend(block.text for block in result.content)
    return FINAL


run.main(lambda: asyncio.run(loop()))
