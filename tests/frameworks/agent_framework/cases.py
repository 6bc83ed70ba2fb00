"""What the middleware does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented]
"""

import asyncio
import json
import sys

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.agent_framework import loopguard_middleware

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
provider.add_span_processor(SimpleSpanProcessor(exporter))
if "--instrumented" in sys.argv:
    trace.set_tracer_provider(provider)

ran = []


class Stuck(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    """Asks for the same call, `at_once` times in one message; answers if `word` was told."""

    def __init__(self, word="\0", name="search", at_once=1):
        super().__init__(function_invocation_configuration={"max_iterations": 40})
        self.word, self.name, self.at_once, self.requests = word, name, at_once, []

    def _answer(self, messages):
        self.requests.append(list(messages))
        if self.word in str(messages[-1].to_dict()):
            return [Content.from_text("Done.")]
        numbers = [f"call_{len(self.requests)}_{number}" for number in range(self.at_once)]
        given = '{"query": "x"}'
        return [Content.from_function_call(one, self.name, arguments=given) for one in numbers]

    def _inner_get_response(self, *, messages, stream, **_options):
        contents = self._answer(messages)

        async def answer():
            return ChatResponse(messages=[Message(role="assistant", contents=contents)])

        async def updates():
            yield ChatResponseUpdate(contents=contents, role="assistant")

        if stream:
            return ResponseStream(updates(), finalizer=ChatResponse.from_updates)
        return answer()


@tool(approval_mode="never_require")
async def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return "No results."


@tool(name="search", approval_mode="never_require")
def broken(query: str) -> str:
    """Searches."""
    ran.append(query)
    raise OSError(query)


def _agent(model=None, tools=(search,), **options):
    middleware = loopguard_middleware(tracer_provider=provider)
    given = {"name": "looper", "tools": list(tools), "middleware": middleware, **options}
    return Agent(client=model or Stuck(), **given)


def _stop(agent, **options):
    ran.clear()
    exporter.clear()
    try:
        asyncio.run(agent.run("Find it.", **options))
    except LoopGuardAbort as stop:
        return stop
    return None


def two_runs():
    agent = _agent()
    found = [(_stop(agent).session, len(ran)) for _ in range(2)]
    return {"ran": [made for _, made in found], "same": found[0][0] == found[1][0]}


def next_turn():
    agent, session = _agent(), AgentSession(session_id="talk-7")
    found = [(_stop(agent, session=session).session, len(ran) > 0) for _ in range(3)]
    return {"ran": [made for _, made in found], "sessions": sorted({key for key, _ in found})}


def hint():
    model = Stuck(word="Do not repeat")
    stop = _stop(_agent(model))
    last = model.requests[-1]
    return {
        "roles": [message.role for message in last[-2:]],
        "hint": last[-1].text[:8],
        "stopped": stop is not None,
    }


def streamed():
    """A run that is read as a stream."""
    agent = _agent()

    async def read():
        async for _ in agent.run("Find it.", stream=True):
            pass

    ran.clear()
    try:
        asyncio.run(read())
    except LoopGuardAbort as stop:
        return {"ran": len(ran), "parts": len(stop.parts)}
    return None


def at_once():
    """Two equal calls in each message."""
    stop = _stop(_agent(Stuck(at_once=2)))
    return {"parts": len(stop.parts) == len(ran), "few": len(ran) < 9}


def failing():
    stop = _stop(_agent(tools=[broken]))
    kinds = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    # The framework lets the model go on after three calls that failed, not longer.
    return {
        "parts": 0 if stop is None else len(stop.parts),
        "spans": kinds.count("OSError") == len(ran),
    }


def below():
    """An agent that is a tool of another one is in its session."""
    inner = _agent()
    outer = _agent(Stuck(name="looper_tool"), [inner.as_tool(name="looper_tool", arg_name="query")])
    stop = _stop(outer, session=AgentSession(session_id="talk-8"))
    return {"session": stop.session, "ran": len(ran)}


def outside():
    """A tool that is called by somebody else is as it was."""
    _stop(_agent())
    exporter.clear()
    ran.clear()
    asyncio.run(search.invoke(arguments={"query": "y"}))
    ours = [
        span
        for span in exporter.get_finished_spans()
        if span.instrumentation_scope.name.startswith("otel_loopguard")
    ]
    return {"ran": list(ran), "own": len(ours)}


CASES = (two_runs, next_turn, hint, streamed, at_once, below, outside, failing)
print(json.dumps({case.__name__: case() for case in CASES}))
