"""An AutoGen agent under its adapter; see tests/frameworks/scripted.py.

AutoGen writes spans itself, without arguments and results, and OpenInference writes others.
"""

import asyncio
import json
import logging

from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_core.tools import FunctionTool, StaticWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient

from otel_loopguard import control, session
from otel_loopguard.integrations.autogen import LoopGuardAssistantAgent, LoopGuardTeam
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, read
from tests.frameworks.scripted import Run

logging.getLogger("autogen_core").setLevel(logging.CRITICAL)
run = Run(
    "autogen", "autogen-agentchat", "autogen-core", native=True,
    instrumentor="openinference.instrumentation.autogen_agentchat:AutogenAgentChatInstrumentor",
)  # fmt: skip
INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="none", structured_output=False
)


def _text(args):
    return args if isinstance(args, str) else json.dumps(args)


class Scripted(ReplayChatCompletionClient):
    def __init__(self, looper):
        super().__init__([], model_info=INFO)
        self.looper = looper

    async def create(self, messages, **_options):
        told = [(one.type, str(one.content)) for one in messages]
        asked = await asyncio.to_thread(self.looper.asked, told)
        calls = [FunctionCall(one.id, _text(one.args), one.tool) for one in asked]
        return CreateResult(
            finish_reason="function_calls" if calls else "stop",
            content=calls or FINAL,
            usage=RequestUsage(0, 0),
            cached=False,
        )

    async def create_stream(self, messages, **_options):
        yield await self.create(messages)


class Agent(Looper):
    def build(self, name="looper", **options):
        self.name, self.loopguard = name, {"tracer_provider": run.provider, **options}
        self.tools, self.agent = [self.search, self.fail], None

    def made(self, **options):
        given = {"max_tool_iterations": 70, **options}
        if "workbench" not in given:
            given["tools"] = self.tools
        return LoopGuardAssistantAgent(self.name, Scripted(self), loopguard=self.loopguard, **given)

    def run(self):
        # AutoGen writes a span of an agent that is made, too.
        self.agent = self.agent or self.made()
        return asyncio.run(self.agent.run(task=QUESTION)).messages[-1].content

    def stream(self):
        streams = {"model_client_stream": True}
        asyncio.run(read(lambda: self.made(**streams).run_stream(task=QUESTION)))

    def history(self):
        messages = asyncio.run(self.agent.model_context.get_messages())
        items = [item for one in messages if isinstance(one.content, list) for item in one.content]
        calls = [one.id for one in items if isinstance(one, FunctionCall)]
        return calls, [one.call_id for one in items if hasattr(one, "call_id")]


def team():
    """A team is one session and passes the stop on, with the results of all its agents."""
    loopers = [Agent(always(SEARCH), name=name) for name in ("first", "second")]
    agents = [looper.made(max_tool_iterations=1) for looper in loopers]
    given = {"termination_condition": MaxMessageTermination(100)}
    made = LoopGuardTeam(RoundRobinGroupChat(agents, **given))
    stop = loopers[0].stopped(lambda: asyncio.run(made.run(task=QUESTION)))
    ran = sum(len(looper.ran) for looper in loopers)
    return {"parts": len(stop.parts) == ran, "few": ran < 9}


def healthy_team():
    """A team whose agents answer runs to its end."""
    agents = [Agent(always(), name=name).made() for name in ("first", "second")]
    done = asyncio.run(LoopGuardTeam(RoundRobinGroupChat(agents, max_turns=4)).run(task=QUESTION))
    return [message.source for message in done.messages]


def aborted():
    """Somebody aborts while the model thinks: no call is made, and the agent does not hang."""

    def script(turn, _):
        if turn == 2:
            control.abort("run-a", "enough")
        return [SEARCH]

    looper = Agent(script)
    with session("run-a"):
        stop = looper.stopped()
    calls, told = looper.history()
    return {"ran": len(looper.ran), "requests": len(looper.requests), "session": stop.session,
            "whole": sorted(calls) == sorted(told)}  # fmt: skip


def below():
    """The loop of an agent that is a tool stops the run that it is a part of."""
    inner = Agent(always(SEARCH), name="inner")
    outer = Agent(always(("inner", {"task": "x"})))
    outer.tools = [AgentTool(inner.made())]
    stop = outer.stopped()
    return {"ran": len(inner.ran), "parts": len(stop.parts)}


def workbench():
    """Tools of a workbench are guarded, of one that does not stream, too."""
    looper = Agent(always(SEARCH))
    tools = StaticWorkbench([FunctionTool(looper.search, description="Searches.")])
    looper.agent = looper.made(workbench=tools)
    return looper.count()


def own_spans():
    """Spans of ours, of calls and of refused ones, are there where nothing else writes them."""
    looper = Agent(always(SEARCH))
    looper.stopped()
    refused = [
        span.attributes.get("error.type") == "loopguard_deny"
        for span in looper.spans.get_finished_spans()
        if span.instrumentation_scope.name.startswith("otel_loopguard.")
    ]
    return [refused.count(False), refused.count(True)]


def unreadable_arguments():
    """A model whose arguments are no JSON, to which AutoGen answers by itself, is stopped too."""
    looper = Agent(always(("search", '{"query": "x')))
    stop = looper.ended()
    return {"stopped": stop is not None, "few": len(looper.requests) < 20, "ran": len(looper.ran)}


def component():
    """The agent is written down as the one that it is without the guard, and loads without us."""
    known = Agent(always()).made().dump_component()
    return [known.provider, known.config["model_client"]["provider"].rsplit(".", 1)[-1]]


run.main(
    Agent, team, healthy_team, aborted, below, workbench, own_spans, unreadable_arguments, component
)  # fmt: skip
