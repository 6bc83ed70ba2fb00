"""pydantic-ai under the guard; see `tests/frameworks/scripted.py`."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("pydantic_ai", "pydantic-ai-slim")
if not run.bare:
    Agent.instrument_all(InstrumentationSettings(tracer_provider=run.provider))


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Says what the script says."""
    call = run.asked(messages)
    if call is None:
        return ModelResponse([TextPart(FINAL)])
    return ModelResponse([ToolCallPart(call.tool, call.args, tool_call_id=call.id)])


agent = Agent(FunctionModel(scripted), name="looper", capabilities=[LoopGuardCapability()])


@agent.tool_plain
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


run.main(lambda: agent.run_sync(QUESTION).output)
