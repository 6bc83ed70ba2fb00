"""A Google ADK agent that searches for ever, see docs/frameworks.md."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor
from otel_loopguard.integrations.google_adk import LoopGuardPlugin

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckModel(BaseLlm):
    async def generate_content_async(self, *_request, **_options):
        call = {"name": "search", "args": {"query": "weather in Paris"}}
        yield LlmResponse(content={"role": "model", "parts": [{"function_call": call}]})


def search(query: str) -> str:
    searches.append(query)
    return "No results."


agent = LlmAgent(name="looper", model=StuckModel(model="stuck"), tools=[search])
plugin = LoopGuardPlugin()
runner = InMemoryRunner(agent=agent, app_name="app", plugins=[plugin])
asyncio.run(runner.run_debug("What is the weather?", session_id="s-1", quiet=True))
stop = plugin.stopped("s-1")
print(f"stopped: {stop}, with {stop and stop.parts} ({len(searches)} searches)")
