"""An agent of Microsoft Agent Framework under its adapter; see tests/frameworks/scripted.py.

The framework writes its spans without arguments and results, which is its default.
"""

import asyncio
import json

import agent_framework as af
from agent_framework import BaseChatClient, ChatMiddlewareLayer, FunctionInvocationLayer
from agent_framework.observability import ChatTelemetryLayer

from otel_loopguard.integrations.agent_framework import loopguard_middleware
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, read
from tests.frameworks.scripted import Run

run = Run("agent_framework", "agent-framework-core", native=True)


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    def __init__(self, looper):
        super().__init__(function_invocation_configuration={"max_iterations": 70})
        self.looper = looper

    async def _contents(self, messages):
        told = [(one.role, str(one.to_dict())) for one in messages]
        asked = await asyncio.to_thread(self.looper.asked, told)
        return [
            af.Content.from_function_call(one.id, one.tool, arguments=json.dumps(one.args))
            for one in asked
        ] or [af.Content.from_text(FINAL)]

    def _inner_get_response(self, *, messages, stream, **_options):
        async def answer():
            message = af.Message(role="assistant", contents=await self._contents(messages))
            return af.ChatResponse(messages=[message], response_id="r")

        async def updates():
            yield af.ChatResponseUpdate(contents=await self._contents(messages), role="assistant")

        if stream:
            return af.ResponseStream(updates(), finalizer=af.ChatResponse.from_updates)
        return answer()


class Agent(Looper):
    def build(self, tools=None, **options):
        self.tools = tools or [
            af.tool(one, approval_mode="never_require") for one in (self.search, self.fail)
        ]
        self.agent = af.Agent(
            client=Scripted(self),
            name="looper",
            tools=self.tools,
            middleware=loopguard_middleware(tracer_provider=run.provider, **options),
        )

    def run(self, **options):
        return str(asyncio.run(self.agent.run(QUESTION, **options)))

    def stream(self):
        asyncio.run(read(lambda: self.agent.run(QUESTION, stream=True)))

    def talk(self, key):
        self.run(session=af.AgentSession(session_id=key))


def below():
    """The loop of an agent that is a tool stops the run that it is a part of, in its session."""
    inner = Agent(always(SEARCH))
    tool = inner.agent.as_tool(name="looper_tool", arg_name="query")
    outer = Agent(always(("looper_tool", {"query": "x"})), tools=[tool])
    stop = outer.stopped(lambda: outer.talk("talk-8"))
    return {"session": stop.session, "ran": len(inner.ran)}


def outside():
    """A tool is as it was outside of a run: called by somebody else it has no span of ours."""
    looper = Agent(always(SEARCH))
    looper.stopped()
    looper.spans.clear()
    asyncio.run(looper.tools[0].invoke(arguments={"query": "y"}))
    scopes = [one.instrumentation_scope.name for one in looper.spans.get_finished_spans()]
    return [looper.ran[-1], sum(one.startswith("otel_loopguard") for one in scopes)]


def workflow():
    """The session of a workflow's agent is the workflow's, not the one that it gives the agent."""
    looper = Agent(always(SEARCH))
    looper.spans.clear()
    built = af.WorkflowBuilder(start_executor=looper.agent).build()
    stop = looper.stopped(lambda: asyncio.run(built.run(QUESTION)))
    ids = {one.attributes.get("workflow.id") for one in looper.spans.get_finished_spans()}
    return {"ran": len(looper.ran), "its": stop.session in ids}


run.main(Agent, below, outside, workflow)
