"""A Strands agent that searches for ever, see docs/frameworks.md."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from strands import Agent, tool
from strands.models import Model

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.strands import LoopGuardHooks

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckModel(Model):
    update_config = structured_output = None
    get_config = dict

    async def stream(self, messages, *_request, **_options):
        call = {"name": "search", "toolUseId": f"call_{len(messages)}"}
        yield {"contentBlockStart": {"start": {"toolUse": call}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"query": "weather"}'}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use"}}


@tool
def search(query: str) -> str:
    searches.append(query)
    return "No results."


try:
    Agent(StuckModel(), tools=[search], hooks=[LoopGuardHooks()])("What is the weather?")
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
