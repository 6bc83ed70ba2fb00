"""An agent of Microsoft Agent Framework under its adapter; see tests/frameworks/scripted.py.

The framework writes spans itself, as soon as there is a tracer provider; without arguments and
results, which is its default. The variant without them has the guard on a provider that the
framework does not know.
"""

import asyncio
import json

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer

from otel_loopguard.integrations.agent_framework import loopguard_middleware
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("agent_framework", "agent-framework-core", native=True)


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    def _inner_get_response(self, *, messages, **_options):
        async def answer():
            call = await asyncio.to_thread(run.asked, [one.to_dict() for one in messages])
            said = (
                Content.from_text(FINAL)
                if call is None
                else Content.from_function_call(call.id, call.tool, arguments=json.dumps(call.args))
            )
            message = Message(role="assistant", contents=[said])
            return ChatResponse(messages=[message], response_id="r")

        return answer()


@tool(approval_mode="never_require")
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


agent = Agent(
    client=Scripted(function_invocation_configuration={"max_iterations": 70}),
    name="looper",
    tools=[search],
    middleware=loopguard_middleware(tracer_provider=run.provider),
)
run.main(lambda: asyncio.run(agent.run(QUESTION)))
