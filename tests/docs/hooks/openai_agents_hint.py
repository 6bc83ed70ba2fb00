"""An OpenAI Agents SDK agent whose model hears the guard's hint, and obeys."""

from agents import Agent, Model, ModelResponse, RunHooks, Runner, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

told = set()


class PassOnTheHint(RunHooks):
    async def on_llm_start(self, context, agent, system_prompt, input_items):
        control.check()
        flag = control.current()
        if flag.hint is not None:
            told.add(flag.decision_id)
            input_items.append({"role": "user", "content": flag.hint})


class ObedientModel(Model):
    async def get_response(self, system_instructions, input, *_args, **_options):  # noqa: A002
        turn = f"call_{len(input)}"
        if "Do not repeat" in str(input[-1]):
            text = ResponseOutputText(
                text="I could not find it.", type="output_text", annotations=[]
            )
            kind, who = "message", "assistant"
            says = ResponseOutputMessage(
                id="m", content=[text], role=who, status="completed", type=kind
            )
        else:
            says = ResponseFunctionToolCall(
                type="function_call", name="search", arguments='{"query": "x"}', call_id=turn
            )
        return ModelResponse(output=[says], usage=Usage(), response_id=None)

    def stream_response(self, *_request, **_options):
        raise NotImplementedError


@function_tool
def search(query: str) -> str:
    """Searches."""
    return "No results."


agent = Agent("helper", model=ObedientModel(), tools=[search])
with otel_loopguard.session("run-1"):
    done = Runner.run_sync(agent, "Find it.", max_turns=50, hooks=PassOnTheHint())
print(f"hints: {len(told)}, answer: {done.final_output}")
