"""An OpenAI Agents SDK agent that searches for ever, see docs/frameworks.md."""

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_trace_processors
from openai.types.responses import ResponseFunctionToolCall
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.openai_agents import LoopGuardHooks

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
set_trace_processors([])  # nothing goes to OpenAI


class StuckModel(Model):
    async def get_response(self, *_request, **options) -> ModelResponse:
        asked, turn = '{"query": "weather in Paris"}', f"call_{len(options['input'])}"
        call = ResponseFunctionToolCall(
            type="function_call", name="search", arguments=asked, call_id=turn)  # fmt: skip
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    stream_response = None


@function_tool
def search(query: str) -> str:
    searches.append(query)
    return "No results."


try:
    agent = Agent("looper", model=StuckModel(), tools=[search])
    Runner.run_sync(agent, "What is the weather?", max_turns=50, hooks=LoopGuardHooks())
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
