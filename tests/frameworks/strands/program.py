"""A Strands agent under its adapter; see tests/frameworks/scripted.py.

Strands writes spans itself, as soon as there is a tracer provider. The variant without them has the
guard on a provider that Strands does not know.
"""

import json

from strands import Agent, tool
from strands.models import Model

from otel_loopguard.integrations.strands import LoopGuardHooks
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("strands", "strands-agents", native=True)


class Scripted(Model):
    def update_config(self, **_):
        pass

    def get_config(self):
        return {"model_id": "scripted"}

    async def structured_output(self, *_args, **_options):
        yield {}

    async def stream(self, messages, *_args, **_options):
        call = run.asked(messages)
        yield {"messageStart": {"role": "assistant"}}
        if call is None:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": FINAL}}}
        else:
            use = {"name": call.tool, "toolUseId": call.id}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call.args)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if call is None else "tool_use"}}


@tool
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


hooks = LoopGuardHooks(tracer_provider=run.provider)
agent = Agent(model=Scripted(), tools=[search], name="looper", callback_handler=None, hooks=[hooks])
run.main(lambda: agent(QUESTION))
