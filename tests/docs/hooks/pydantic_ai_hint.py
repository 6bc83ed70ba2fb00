"""A pydantic-ai agent whose model hears the guard's hint, and obeys."""

from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.capabilities import Hooks, Instrumentation
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())

told = set()
hooks = Hooks()


@hooks.on.before_model_request
def pass_on_the_hint(context, request):
    control.check()
    flag = control.current()
    if flag.hint is not None and flag.decision_id not in told:
        told.add(flag.decision_id)
        context.enqueue(flag.hint)
    return request


def obedient_model(messages, _info) -> ModelResponse:
    if "Do not repeat" in str(messages[-1]):
        return ModelResponse([TextPart("I could not find it.")])
    return ModelResponse([ToolCallPart("search", {"query": "x"})])


instrumentation = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
agent = Agent(FunctionModel(obedient_model), capabilities=[instrumentation, hooks])


@agent.tool_plain
def search(query: str) -> str:
    """Searches."""
    return "No results."


with otel_loopguard.session("run-1"):
    done = agent.run_sync("Find it.")
print(f"hints: {len(told)}, answer: {done.output}")
