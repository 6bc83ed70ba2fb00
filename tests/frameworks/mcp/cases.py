"""What client and server do besides the scenarios: one JSON object, a case by name.

python cases.py; with `serve` it is the server, which needs no guard of the client's.
"""

import asyncio
import json
import logging
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, Settings, control
from otel_loopguard.integrations.mcp import LoopGuardClient, LoopGuardServerMiddleware

logging.getLogger("mcp").setLevel(logging.ERROR)
provider = TracerProvider()
settings = Settings(propagation_key="a key that is theirs")
provider.add_span_processor(LoopGuardSpanProcessor(LoopGuard(settings)))
trace.set_tracer_provider(provider)
server = MCPServer("searcher", middleware=[LoopGuardServerMiddleware()])


@server.tool()
def search(query: str) -> str:
    """Searches."""
    return f"No results for {query}."


@server.tool()
def broken(query: str) -> str:
    """Fails."""
    raise OSError(query)


def _remote():
    known = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return StdioServerParameters(command=sys.executable, args=[__file__, "serve"], env=known)


async def _said(client, tool="search", query="x", **options):
    result = await client.call_tool(tool, {"query": query}, **options)
    return [result.is_error, *(block.text for block in result.content)]


async def server_alone():
    """A client without the adapter: the server refuses the loop of one connection."""
    with trace.get_tracer("agent").start_as_current_span("invoke_agent"):
        async with Client(stdio_client(_remote())) as client:
            said = [await _said(client, query=query) for query in "xxxxxx"]
    async with Client(stdio_client(_remote())) as client:
        again = await _said(client)
    return {
        "errors": [one[0] for one in said],
        "hinted": [index for index, one in enumerate(said) if len(one) > 2],
        "again": again,
    }


async def session_that_came_along():
    """What was decided in the client's process stops the server, by what is in `_meta`."""
    async with Client(stdio_client(_remote())) as plain:
        client = LoopGuardClient(plain)
        with otel_loopguard.session("talk-9"):
            before = await _said(client)
            control.abort("talk-9", "enough")
            with trace.get_tracer("agent").start_as_current_span("step"):
                meta = client._meta("elsewhere", None)
                after = await _said(plain, meta=meta)
        other = await _said(plain)
    return {"before": before, "after": after, "other": other, "sent": sorted(meta)}


async def stop_leaves_the_block():
    """A stop comes out of the client's block as it is, with the results."""
    try:
        async with LoopGuardClient(Client(server)) as client:
            for _ in range(20):
                await _said(client)
    except LoopGuardAbort as stop:
        return list(stop.parts)
    return None


async def failing():
    """Errors are no results."""
    try:
        async with LoopGuardClient(Client(server)) as client:
            for _ in range(20):
                await _said(client, "broken")
    except LoopGuardAbort as stop:
        return list(stop.parts)
    return None


async def own_meta():
    """What the caller sends in `_meta` is sent."""
    async with LoopGuardClient(Client(server)) as client:
        return await _said(client, query="z", meta={"progressToken": "mine"})


if "serve" in sys.argv:
    server.run()
else:
    cases = (server_alone, session_that_came_along, stop_leaves_the_block, own_meta, failing)
    print(json.dumps({case.__name__: asyncio.run(case()) for case in cases}))
