"""An AutoGen agent that searches for ever, see docs/frameworks.md."""

import asyncio
import json

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.autogen import LoopGuardAssistantAgent

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


calls = [CreateResult(
    finish_reason="function_calls", usage=RequestUsage(0, 0), cached=False,
    content=[FunctionCall(str(turn), json.dumps({"query": "weather"}), "search")],
) for turn in range(40)]  # fmt: skip
model = ReplayChatCompletionClient(calls, model_info=ModelInfo(
    vision=False, function_calling=True, json_output=False, family="",
    structured_output=False))  # fmt: skip
agent = LoopGuardAssistantAgent("looper", model, tools=[search], max_tool_iterations=40)
try:
    asyncio.run(agent.run(task="What is the weather?"))
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
