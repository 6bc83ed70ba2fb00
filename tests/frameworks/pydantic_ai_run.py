"""A pydantic-ai agent whose tool is asked for six people, beside the processors of others.

Run with one argument: `logfire`, `openinference-first` or `openinference-last`. Prints one JSON
object: the arguments, outcomes and decisions that the guard saw, and its faults.
"""

import json
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings

NAMES = ["alice", "bob", "carol", "dave", "erin", "frank"]
calls, decisions = [], []
guard = LoopGuard(
    Settings(),
    on_step=lambda _session, _index, step: calls.append(step) if step.kind == "tool" else None,
    on_decision=lambda _session, decision: decisions.append(decision.action.value),
)
processor = LoopGuardSpanProcessor(guard)


def model(messages, info):
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if done == len(NAMES):
        return ModelResponse(parts=[TextPart("done")])
    args = {"what": f"reset session for {NAMES[done]}"}
    return ModelResponse(parts=[ToolCallPart("reset", args, tool_call_id=f"call_{done}")])


def instrument(how):
    if how == "logfire":
        import logfire

        logfire.configure(
            send_to_logfire=False,
            console=False,
            additional_span_processors=[processor],
            inspect_arguments=False,
        )
        logfire.instrument_pydantic_ai()
        return
    from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    both = [OpenInferenceSpanProcessor(), processor]
    for one in both if how == "openinference-first" else reversed(both):
        provider.add_span_processor(one)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))


instrument(sys.argv[1])
agent = Agent(FunctionModel(model), name="support")


@agent.tool_plain
def reset(what: str) -> str:
    return "the session cookie was reset"


agent.run_sync("reset them all")
guard.settle()
seen = {
    "args": [json.loads(call.args) for call in calls],
    "outcomes": [call.outcome for call in calls],
    "decisions": decisions,
    "faults": dict(guard.faults.counts),
}
print(json.dumps(seen))
