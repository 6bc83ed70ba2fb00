"""A Google ADK agent under its adapter; see tests/frameworks/scripted.py."""

import asyncio
import contextvars
import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.adk.agents import LlmAgent, LoopAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from opentelemetry import trace

from otel_loopguard.integrations.google_adk import LoopGuardPlugin
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, turns
from tests.frameworks.scripted import Run

warnings.simplefilter("ignore")
run = Run("google_adk", "google-adk", native=True)
runs = itertools.count(1)


class Scripted(BaseLlm):
    looper: Any = None

    async def generate_content_async(self, llm_request, stream=False):
        asked = self.looper.asked([(one.role, str(one.parts)) for one in llm_request.contents])
        parts = [
            types.Part(function_call=types.FunctionCall(name=one.tool, args=one.args, id=one.id))
            for one in asked
        ]
        parts = parts or [types.Part(text=FINAL)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


class Agent(Looper):
    def build(self, tools=None, workflow=False, **options):
        self.plugin = LoopGuardPlugin(tracer_provider=run.provider, **options)
        model = Scripted(model="scripted", looper=self)
        agent = LlmAgent(name="looper", model=model, tools=tools or [self.search, self.fail])
        if workflow:
            agent = LoopAgent(name="again", sub_agents=[agent])
        self.runner = InMemoryRunner(agent=agent, app_name="app", plugins=[self.plugin])
        self.key = ""

    def run(self):
        return self.talk(f"s-{next(runs)}")

    def talk(self, key):
        self.key = key
        events = asyncio.run(self.runner.run_debug(QUESTION, session_id=key, quiet=True))
        self.codes = [event.error_code for event in events if event.error_code]
        texts = [one.content.parts[0].text for one in events if one.content and one.content.parts]
        return str(texts[-1]) if texts else ""

    def kept(self):
        return self.plugin.stopped(self.key)

    def history(self):
        known = {"app_name": "app", "user_id": "debug_user_id", "session_id": self.key}
        kept = asyncio.run(self.runner.session_service.get_session(**known))
        calls = [call.id for event in kept.events for call in event.get_function_calls()]
        told = [said.id for event in kept.events for said in event.get_function_responses()]
        return calls, told


def ends():
    """A stop ends the run as ADK does: the last answer says so, the plugin keeps the exception."""
    looper = Agent(always(SEARCH))
    stop = looper.stopped(lambda: looper.talk("ended"))
    return [looper.codes[:1], stop.session]


def next_request():
    """The next turn goes on below the span of a web server too."""
    looper, made = Agent(always(SEARCH)), []
    for _ in range(2):
        with trace.get_tracer("web").start_as_current_span("POST /chat"):
            looper.stopped(lambda: looper.talk("request"))
            made.append(len(looper.ran) > 0)
    return made


def workflow():
    """A `LoopAgent` does not ask its agent again."""
    looper = Agent(always(SEARCH), workflow=True)
    looper.stopped()
    return len(looper.ran)


def beside():
    """Runs at the same time below one span are sessions of their own, and each is stopped."""
    loopers = [Agent(always(SEARCH)) for _ in range(3)]
    with loopers[0].below(), ThreadPoolExecutor() as pool:
        runs = [pool.submit(contextvars.copy_context().run, looper.run) for looper in loopers]
    assert all(run.result() for run in runs)
    return [len(looper.ran) for looper in loopers]


def below():
    """The loop of an agent that is a tool is stopped, in the session that ADK makes for it.

    The run around it ends too, and says by what.
    """
    inner = Agent(always(SEARCH))
    outer = Agent(turns([("looper", {"request": "x"})]), tools=[AgentTool(inner.runner.agent)])
    stop = outer.stopped()
    return {"ran": len(inner.ran), "outer": len(outer.requests), "parts": bool(stop.parts)}


def told_failures():
    """A loop whose tool answers with an error is a loop like any other; errors are no results."""

    def search(query: str) -> dict:
        """Searches."""
        made.append(query)
        return {"error": "no such index"}

    made = []
    stop = Agent(always(SEARCH), tools=[search]).stopped()
    return {"few": len(made) < 10, "parts": len(stop.parts)}


def raising():
    """What a tool raises comes out and leaves nothing open; its span has the failure."""
    looper = Agent(always(("fail", {"query": "x"})))
    looper.spans.clear()
    try:
        looper.run()
    except ValueError as error:
        return [str(error), looper.errors() > 0, len(looper.plugin._adapter._calls)]


run.main(Agent, ends, next_request, workflow, beside, below, told_failures, raising)
