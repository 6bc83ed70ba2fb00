"""An AutoGen agent under its adapter; see tests/frameworks/scripted.py.

AutoGen writes spans itself, as soon as there is a tracer provider, without arguments and results.
The variant without them has the guard on a provider that AutoGen does not know. OpenInference,
which writes spans besides AutoGen's, is in cases.py.
"""

import asyncio
import json

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from otel_loopguard.integrations.autogen import LoopGuardAssistantAgent
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("autogen", "autogen-agentchat", "autogen-core", native=True)


class Scripted(ReplayChatCompletionClient):
    async def create(self, messages, **_options):
        call = await asyncio.to_thread(run.asked, [str(one.content) for one in messages])
        said = FINAL if call is None else [FunctionCall(call.id, json.dumps(call.args), call.tool)]
        return CreateResult(
            finish_reason="stop" if call is None else "function_calls",
            content=said,
            usage=RequestUsage(0, 0),
            cached=False,
        )


def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


info = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="none", structured_output=False
)


def work():
    # AutoGen writes a span of an agent that is made, too.
    agent = LoopGuardAssistantAgent(
        "looper",
        Scripted([], model_info=info),
        tools=[search],
        max_tool_iterations=70,
        loopguard={"tracer_provider": run.provider},
    )
    return asyncio.run(agent.run(task=QUESTION)).messages[-1].content


run.main(work)
