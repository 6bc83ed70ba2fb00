"""A pydantic-ai agent that searches for ever, noticed from its spans and stopped.

pip install otel-loopguard pydantic-ai-slim openinference-instrumentation-pydantic-ai
python examples/pydantic_ai_agent.py
"""

import sys

from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.capabilities import Hooks, Instrumentation
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

import otel_loopguard
from otel_loopguard import Action, LoopGuardAbort, LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())  # the one line
provider.add_span_processor(OpenInferenceSpanProcessor())

searches: list[str] = []
hooks = Hooks()


@hooks.on.before_model_request
def ask_the_guard(_context, request):
    """Runs before every turn of the model: the place to stop."""
    flag = control.current()
    if flag.action is not Action.ALLOW:
        print(f"{flag.action} after {len(searches)} searches: {flag.reason}")
    control.check()
    return request


def stuck_model(_messages, _info) -> ModelResponse:
    """Asks for the same search at every turn, as a stuck model does."""
    return ModelResponse([ToolCallPart("search", {"query": "weather in Paris"})])


instrumentation = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
agent = Agent(FunctionModel(stuck_model), capabilities=[instrumentation, hooks])


@agent.tool_plain
def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


try:
    with otel_loopguard.session("run-1"):
        agent.run_sync("What is the weather?")
except LoopGuardAbort as stop:
    print(f"stopped: {stop} ({len(searches)} searches)")
    sys.exit(0)
sys.exit("The agent was not stopped.")
