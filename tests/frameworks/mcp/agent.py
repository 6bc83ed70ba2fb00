"""An agent's loop over a client and a server of MCP; see tests/frameworks/scripted.py.

The SDK writes spans itself, as soon as there is a tracer provider, without arguments and results:
here that of the server, which is in this process, in the trace of the agent's span. In the variant
without them the client's adapter writes them. `agent.py serve` is the server alone, in a process of
its own.
"""

import asyncio
import logging
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace

import otel_loopguard
from otel_loopguard import control
from otel_loopguard.integrations.mcp import LoopGuardClient, LoopGuardServerMiddleware
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always
from tests.frameworks.scripted import Run

SERVES = "serve" in sys.argv
logging.getLogger("mcp").setLevel(logging.ERROR)
os.environ["LOOPGUARD_PROPAGATION_KEY"] = "a key that is theirs"
if SERVES:
    sys.argv[1:] = ["cases", "--variant", "both"]
run = Run("mcp", "mcp", native=True)


class Agent(Looper):
    def build(self, **options):
        # Where the server's spans are those of this process, the client needs none.
        spans = None if run.bare else False
        self.options = {"tracer_provider": run.provider, "spans": spans, **options}
        middleware = LoopGuardServerMiddleware(tracer_provider=run.provider)
        self.server = MCPServer("searcher", middleware=[middleware])
        self.server.add_tool(self.search)
        self.server.add_tool(self.fail)

    def run(self):
        return asyncio.run(self.loop())

    async def loop(self):
        told = [("user", QUESTION)]
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "looper"}
        async with LoopGuardClient(Client(self.server), **self.options) as client:
            with trace.get_tracer("agent").start_as_current_span("invoke_agent", attributes=agent):
                while calls := await asyncio.to_thread(self.asked, told):
                    for call in calls:
                        result = await client.call_tool(call.tool, call.args)
                        told.append(("tool", " ".join(block.text for block in result.content)))
        return FINAL


def _remote():
    known = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return StdioServerParameters(command=sys.executable, args=[__file__, "serve"], env=known)


async def _said(client, query="x", **options):
    result = await client.call_tool("search", {"query": query}, **options)
    return [result.is_error, *(block.text for block in result.content)]


def server_alone():
    """Of a client without the adapter the server refuses the loop, and of the next none."""

    async def ask():
        with trace.get_tracer("agent").start_as_current_span("invoke_agent"):
            async with Client(stdio_client(_remote())) as client:
                said = [await _said(client, query=query) for query in "xxxxxx"]
        async with Client(stdio_client(_remote())) as client:
            return said, await _said(client)

    said, again = asyncio.run(ask())
    return {
        "errors": [one[0] for one in said],
        "hinted": [index for index, one in enumerate(said) if len(one) > 2],
        "again": again,
    }


def session_that_came_along():
    """What was decided in the client's process stops the server, by what is signed in `_meta`."""

    async def ask():
        async with Client(stdio_client(_remote())) as plain:
            client = LoopGuardClient(plain)
            with otel_loopguard.session("talk-9"):
                before = await _said(client)
                control.abort("talk-9", "enough")
                with trace.get_tracer("agent").start_as_current_span("step"):
                    meta = client._meta("elsewhere", None)
                    after = await _said(plain, meta=meta)
            other = await _said(plain)
        stopped = [after[0], "talk-9" in after[1]]
        return {"before": before, "after": stopped, "other": other, "sent": sorted(meta)}

    return asyncio.run(ask())


def own_meta():
    """What the caller sends in `_meta` is sent."""

    async def ask():
        async with LoopGuardClient(Client(Agent(always(SEARCH)).server)) as client:
            return await _said(client, query="z", meta={"progressToken": "mine"})

    return asyncio.run(ask())


if SERVES:
    Agent(always()).server.run()
else:
    run.main(Agent, server_alone, session_that_came_along, own_meta)
