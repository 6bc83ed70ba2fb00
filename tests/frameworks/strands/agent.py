"""A Strands agent under its adapter; see tests/frameworks/scripted.py."""

import asyncio
import json

import strands
from strands.models import Model
from strands.multiagent import GraphBuilder, Swarm

from otel_loopguard import LoopGuardAbort
from otel_loopguard.core import Kind
from otel_loopguard.dialects import Reader
from otel_loopguard.integrations.strands import LoopGuardHooks
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, read, turns
from tests.frameworks.scripted import Run

run = Run("strands", "strands-agents", native=True)


class Scripted(Model):
    update_config = structured_output = None

    def __init__(self, looper):
        self.looper = looper

    def get_config(self):
        return {"model_id": "scripted"}

    async def stream(self, messages, *_args, **_options):
        asked = self.looper.asked([(one["role"], str(one["content"])) for one in messages])
        yield {"messageStart": {"role": "assistant"}}
        if not asked:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": FINAL}}}
            yield {"contentBlockStop": {}}
        for one in asked:
            use = {"name": one.tool, "toolUseId": one.id}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(one.args)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if asked else "end_turn"}}


class Agent(Looper):
    def build(self, **options):
        self.hooks = LoopGuardHooks(tracer_provider=run.provider, **options)
        self.agent = self.made()

    def made(self, **options):
        tools = [strands.tool(self.search), strands.tool(self.fail)]
        given = {"tools": tools, "hooks": [self.hooks], "callback_handler": None, **options}
        return strands.Agent(Scripted(self), name="looper", **given)

    def run(self):
        return str(self.agent(QUESTION)).strip()

    def stream(self):
        asyncio.run(read(lambda: self.agent.stream_async(QUESTION)))

    def talk(self, key):
        self.agent = self.made(trace_attributes={"session.id": key})
        self.run()

    def history(self):
        blocks = [block for message in self.agent.messages for block in message["content"]]
        calls = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        told = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        return calls, told


def asked_again():
    """An agent whose calls at once were stopped may be asked again, and its history is whole."""
    looper = Agent(always(SEARCH, SEARCH))
    looper.stopped()
    looper.script = always()
    looper.run()
    calls, told = looper.history()
    return sorted(calls) == sorted(told)


def graph():
    """A graph passes the stop on."""
    looper, builder = Agent(always(SEARCH)), GraphBuilder()
    builder.add_node(looper.agent, "looper")
    looper.stopped(lambda: builder.build()(QUESTION))
    return len(looper.ran)


def swarm():
    """A swarm ends as failed: the stop is the result of its node."""
    looper = Agent(always(SEARCH))
    result = Swarm([looper.agent])(QUESTION)
    stop = isinstance(result.results["looper"].result, LoopGuardAbort)
    return {"status": result.status.value, "stop": stop, "ran": len(looper.ran)}


def interrupted():
    """A call that waits for a person is not open meanwhile, and counts once it is made."""

    @strands.tool(context=True)
    def ask(query: str, tool_context: strands.ToolContext) -> str:
        """Asks a person."""
        return tool_context.interrupt("ask", reason=query)

    looper = Agent(turns([("ask", {"query": "May I?"})]))
    looper.agent = looper.made(tools=[ask])
    looper.spans.clear()
    asked = looper.agent(QUESTION).interrupts
    waits = len(looper.hooks._adapter._calls)
    looper.agent([{"interruptResponse": {"interruptId": asked[0].id, "response": "yes"}}])
    spans = looper.spans.get_finished_spans()
    steps = [step for span in spans if (step := Reader().read(EndedSpanView(span)))]
    return {"open": waits, "calls": sum(step.kind is Kind.TOOL for step in steps)}


def nothing_open():
    """After a loop of calls that fail no call stays open."""
    looper = Agent(always(("fail", {"query": "x"})))
    looper.stopped()
    return len(looper.hooks._adapter._calls)


run.main(Agent, asked_again, graph, swarm, interrupted, nothing_open)
