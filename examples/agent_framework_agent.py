"""An agent of Microsoft Agent Framework that searches for ever, see docs/frameworks.md."""

import asyncio

import agent_framework as af
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.agent_framework import loopguard_middleware

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckClient(af.FunctionInvocationLayer, af.ChatMiddlewareLayer, af.BaseChatClient):
    async def _inner_get_response(self, *, messages, **_options):
        call = af.Content.from_function_call(
            f"call_{len(messages)}", "search", arguments={"query": "weather"})  # fmt: skip
        return af.ChatResponse(messages=[af.Message(role="assistant", contents=[call])])


def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


agent = af.Agent(client=StuckClient(), tools=[search], middleware=loopguard_middleware())
try:
    asyncio.run(agent.run("What is the weather?"))
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
