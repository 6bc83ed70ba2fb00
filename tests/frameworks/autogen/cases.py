"""What the agent and the team do besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented] [--openinference]
"""

import asyncio
import json
import logging
import sys

from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor, control
from otel_loopguard.integrations.autogen import LoopGuardAssistantAgent, LoopGuardTeam

logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
provider.add_span_processor(SimpleSpanProcessor(exporter))
if "--instrumented" in sys.argv:
    trace.set_tracer_provider(provider)
if "--openinference" in sys.argv:
    from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor

    AutogenAgentChatInstrumentor().instrument(tracer_provider=provider)

ran = []
INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="none", structured_output=False
)


class Stuck(ReplayChatCompletionClient):
    """Asks for the same call, `at_once` times in one message; answers if `word` was told."""

    def __init__(self, word="\0", name="search", at_once=1, then=lambda turn: None):
        super().__init__([], model_info=INFO)
        self.word, self.name, self.at_once, self.then, self.requests = word, name, at_once, then, []

    def _answer(self, messages):
        self.requests.append(list(messages))
        turn = len(self.requests)
        self.then(turn)
        said = "Done."
        if self.word not in str(messages[-1].content) and turn <= 60:
            given = json.dumps({"query": "x"} if self.name == "search" else {"task": "x"})
            numbers = [f"call_{turn}_{number}" for number in range(self.at_once)]
            said = [FunctionCall(one, given, self.name) for one in numbers]
        reason = "stop" if said == "Done." else "function_calls"
        usage = RequestUsage(0, 0)
        return CreateResult(finish_reason=reason, content=said, usage=usage, cached=False)

    async def create(self, messages, **_options):
        return self._answer(messages)

    async def create_stream(self, messages, **_options):
        yield self._answer(messages)


async def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return "No results."


def _broken(query: str) -> str:
    ran.append(query)
    raise FileNotFoundError(2, "No such file or directory", query)


def _agent(model=None, name="looper", **options):
    given = {"tools": [search], "max_tool_iterations": 50, **options}
    if "workbench" in given:
        del given["tools"]
    loopguard = {"tracer_provider": provider}
    return LoopGuardAssistantAgent(name, model or Stuck(), loopguard=loopguard, **given)


def _stop(runner):
    ran.clear()
    exporter.clear()
    try:
        asyncio.run(asyncio.wait_for(runner.run(task="Find it."), 60))
    except LoopGuardAbort as stop:
        return stop
    return None


def _own():
    return [
        span
        for span in exporter.get_finished_spans()
        if span.instrumentation_scope.name.startswith("otel_loopguard.")
    ]


def _whole(agent):
    """Whether every call in the agent's context has a result."""
    messages = asyncio.run(agent.model_context.get_messages())
    items = [one for message in messages if isinstance(message.content, list)
             for one in message.content]  # fmt: skip
    calls = [one.id for one in items if isinstance(one, FunctionCall)]
    return sorted(calls) == sorted(one.call_id for one in items if hasattr(one, "call_id"))


def two_runs():
    agent = _agent()
    found = [(_stop(agent).session, len(ran)) for _ in range(2)]
    return {"ran": [made for _, made in found], "same": found[0][0] == found[1][0]}


def history():
    agent = _agent(Stuck(at_once=2))
    stop = _stop(agent)
    return {"parts": len(stop.parts) == len(ran), "whole": _whole(agent)}


def hint():
    model = Stuck(word="Do not repeat")
    agent = _agent(model)
    stop = _stop(agent)
    kept = asyncio.run(agent.model_context.get_messages())
    return {
        "last": [message.type for message in model.requests[-1][-2:]],
        "kept": "Do not repeat" in str(kept),
        "stopped": stop is not None,
    }


def streamed():
    """A run that is read as a stream, of a model that streams."""
    agent = _agent(model_client_stream=True)

    async def read():
        async for _ in agent.run_stream(task="Find it."):
            pass

    ran.clear()
    try:
        asyncio.run(read())
    except LoopGuardAbort as stop:
        return {"ran": len(ran), "parts": len(stop.parts)}
    return None


def team():
    """Two agents in turn, each of which calls once in its turn."""
    agents = [_agent(name=name, max_tool_iterations=1) for name in ("first", "second")]
    given = {"termination_condition": MaxMessageTermination(100)}
    stop = _stop(LoopGuardTeam(RoundRobinGroupChat(agents, **given)))
    return {"ran": len(ran), "parts": len(stop.parts), "few": len(ran) < 9}


def healthy_team():
    """A team whose agents answer is left alone."""
    agents = [_agent(Stuck(word=""), name=name) for name in ("first", "second")]
    made = LoopGuardTeam(RoundRobinGroupChat(agents, max_turns=4))
    done = asyncio.run(made.run(task="Find it."))
    return [message.source for message in done.messages]


def aborted():
    """Somebody aborts while the model thinks: no call is made, and the agent does not hang."""
    model = Stuck(then=lambda turn: turn == 2 and control.abort("run-a", "enough"))
    agent = _agent(model)
    with otel_loopguard.session("run-a"):
        stop = _stop(agent)
    return {"ran": len(ran), "requests": len(model.requests), "whole": _whole(agent),
            "session": stop.session}  # fmt: skip


def below():
    """An agent that is a tool of another one is in its session, and stops it."""
    outer = _agent(Stuck(name="inner"), tools=[AgentTool(_agent(name="inner"))])
    stop = _stop(outer)
    return {"ran": len(ran), "parts": len(stop.parts)}


def workbench():
    """Tools in a workbench that does not stream."""
    tools = StaticWorkbench([FunctionTool(search, description="Searches.")])
    stop = _stop(_agent(workbench=tools))
    return {"ran": len(ran), "parts": len(stop.parts)}


def own_spans():
    """Spans of ours: of calls that were made, and of refused ones."""
    _stop(_agent())
    refused = [span.attributes.get("error.type") == "loopguard_deny" for span in _own()]
    return [refused.count(False), refused.count(True)]


def component():
    """The agent is written down as the one that it is without the guard."""
    known = _agent().dump_component()
    return [known.provider, known.config["model_client"]["provider"].rsplit(".", 1)[-1]]


def failing():
    tool = FunctionTool(_broken, name="search", description="Searches.")
    stop = _stop(_agent(tools=[tool]))
    kinds = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    return {"parts": len(stop.parts), "errors": kinds.count("FileNotFoundError") == len(ran)}


CASES = (
    two_runs, history, hint, streamed, team, healthy_team, aborted, below, workbench, own_spans,
    component, failing,
)  # fmt: skip
print(json.dumps({case.__name__: case() for case in CASES}))
