"""An OpenAI Agents SDK agent under its adapter; see tests/frameworks/scripted.py."""

import json

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    Usage,
    function_tool,
    generation_span,
    set_trace_processors,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from otel_loopguard.integrations.openai_agents import LoopGuardHooks
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("openai_agents", "openai-agents", "openinference-instrumentation-openai-agents")
set_trace_processors([])
if not run.bare:
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=run.provider)


class Scripted(Model):
    async def get_response(self, system_instructions, input, *_args, **_options):  # noqa: A002
        with generation_span(model="scripted"):  # as the models of the SDK do
            call = run.asked(input)
        return ModelResponse(output=[_said(call)], usage=Usage(), response_id=None)

    def stream_response(self, *_request, **_options):
        raise NotImplementedError


def _said(call):
    if call is None:
        text = ResponseOutputText(text=FINAL, type="output_text", annotations=[])
        return ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
    return ResponseFunctionToolCall(
        type="function_call", name=call.tool, arguments=json.dumps(call.args), call_id=call.id
    )


@function_tool
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


agent = Agent("looper", model=Scripted(), tools=[search])


def work():
    done = Runner.run_sync(agent, QUESTION, max_turns=200, hooks=LoopGuardHooks())
    return done.final_output


run.main(work)
