"""A pydantic-ai agent that searches for ever, see docs/frameworks.md."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


def stuck_model(_messages, _info) -> ModelResponse:
    return ModelResponse([ToolCallPart("search", {"query": "weather"})])


agent = Agent(FunctionModel(stuck_model), capabilities=[LoopGuardCapability()])


@agent.tool_plain
def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


try:
    agent.run_sync("What is the weather?")
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
