"""A tool that takes long is sent to the background by choice; the agent goes on meanwhile.

pip install otel-loopguard
python examples/background_tool.py
"""

import asyncio

from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor, execution

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())  # the one line
tracer = provider.get_tracer("my.agent")


async def call(tool: str, seconds: float) -> str:
    """A tool call, with the span that an instrumentation would write."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes):
        await asyncio.sleep(seconds)  # the work
    return f"{tool} is done"


async def agent() -> None:
    """Three calls; what takes long is not waited for."""
    waiting: list[asyncio.Task[str]] = []
    for tool, seconds in (("file_read", 0.01), ("video_process", 0.1), ("file_write", 0.01)):
        choice = execution.admit(tool)
        print(f"{tool}: {choice.choice}, about {choice.estimate_ms / 1000:.0f} s expected")
        if choice.choice is execution.Choice.AUTO_BACKGROUND:
            waiting.append(asyncio.create_task(call(tool, seconds)))
        else:
            print(await call(tool, seconds))
    for result in await asyncio.gather(*waiting):
        print(result)


with otel_loopguard.session("run-1"):
    asyncio.run(agent())
provider.shutdown()
