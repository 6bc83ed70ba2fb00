"""An agent of smolagents under its adapter; see tests/frameworks/scripted.py."""

from smolagents import Model, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)  # fmt: skip

from otel_loopguard.integrations.smolagents import guarded
from tests.frameworks.scripted import FINAL, QUESTION, Asked, Run

run = Run("smolagents", "smolagents", "openinference-instrumentation-smolagents")
if not run.bare:
    from openinference.instrumentation.smolagents import SmolagentsInstrumentor

    SmolagentsInstrumentor().instrument(tracer_provider=run.provider)


class Scripted(Model):
    def generate(self, messages, **_):
        call = run.asked([one.content for one in messages])
        if call is None:
            # The answer is a call of a tool of smolagents.
            run.answered_by_call()
            call = Asked("final_answer", {"answer": FINAL}, "call_final")
        function = ChatMessageToolCallFunction(name=call.tool, arguments=call.args)
        asked = ChatMessageToolCall(id=call.id, type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=[asked])


@tool
def search(query: str) -> str:
    """Searches the web.

    Args:
        query: What is searched.
    """
    return run.searched(query)


agent = guarded(ToolCallingAgent(tools=[search], model=Scripted(), max_steps=70, verbosity_level=0))
run.main(lambda: agent.run(QUESTION))
