"""A tool that hangs: the guard notices it while it hangs, and the agent's loop cancels it.

pip install otel-loopguard
"""

import asyncio

from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuardLimit, LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(step_timeout_s=0.5))
tracer = provider.get_tracer("my.agent")


async def crawl(url: str) -> str:
    """A server that takes the request and never answers."""
    await asyncio.Event().wait()
    return url


async def call_tool(url: str) -> str:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "crawl"}
    with tracer.start_as_current_span("execute_tool crawl", attributes=attributes):
        async with control.limit(1.5, tool="crawl"):
            return await crawl(url)


async def watch() -> None:
    """Whoever looks from outside sees it before the limit is over."""
    while control.current().action == "allow":  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    print(f"{control.current().action}: {control.current().hint}")


async def agent() -> None:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "reader"}
    with tracer.start_as_current_span("invoke_agent reader", attributes=attributes):
        watcher = asyncio.create_task(watch())
        try:
            await call_tool("https://example.com")
        except LoopGuardLimit as stop:
            print(f"cancelled: {stop}")
        await watcher
        print("the agent goes on with another source")


if __name__ == "__main__":
    asyncio.run(agent())
