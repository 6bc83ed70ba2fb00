"""An OpenAI Agents SDK agent that searches for ever, noticed from its spans and stopped.

pip install otel-loopguard openai-agents openinference-instrumentation-openai-agents
python examples/openai_agents_agent.py
"""

import sys

from agents import Agent, Model, ModelResponse, RunHooks, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import Action, LoopGuardAbort, LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())  # the one line
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

searches: list[str] = []


class StuckModel(Model):
    """Asks for the same search at every turn, as a stuck model does."""

    async def get_response(self, *_request, **_options) -> ModelResponse:
        query, turn = '{"query": "weather in Paris"}', f"call_{len(searches)}"
        kind = "function_call"
        call = ResponseFunctionToolCall(type=kind, name="search", arguments=query, call_id=turn)
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *_request, **_options):
        raise NotImplementedError


@function_tool
def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


class AskTheGuard(RunHooks):
    async def on_llm_start(self, *_details) -> None:
        """Runs before every turn of the model: the place to stop."""
        flag = control.current()
        if flag.action is not Action.ALLOW:
            print(f"{flag.action} after {len(searches)} searches: {flag.reason}")
        control.check()


agent = Agent("looper", model=StuckModel(), tools=[search])
try:
    with otel_loopguard.session("run-1"):
        Runner.run_sync(agent, "What is the weather?", max_turns=200, hooks=AskTheGuard())
except LoopGuardAbort as stop:
    print(f"stopped: {stop} ({len(searches)} searches)")
    sys.exit(0)
sys.exit("The agent was not stopped.")
