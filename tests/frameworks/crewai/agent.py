"""A crew of CrewAI under its adapter; see tests/frameworks/scripted.py."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_TESTING": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}

import crewai
from crewai.flow.flow import Flow, start
from crewai.hooks.dispatch import InterceptionPoint, get_hooks, register, unregister
from crewai.tools import tool

from otel_loopguard.integrations.crewai import LoopGuardHooks
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Asked, Looper, always, search, turns
from tests.frameworks.scripted import Run

run = Run(
    "crewai", "crewai", "openinference-instrumentation-crewai",
    instrumentor="openinference.instrumentation.crewai:CrewAIInstrumentor",
)  # fmt: skip
hooks = [LoopGuardHooks().register()]


class Model(crewai.BaseLLM):
    """Asks for calls, or for one in a text, which CrewAI reads out of it."""

    looper: Any = None
    native: bool = True

    def supports_function_calling(self) -> bool:
        return self.native

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        asked = self.looper.asked([(one["role"], str(one["content"])) for one in messages])
        if not asked:
            return FINAL if self.native else f"Thought: I know.\nFinal Answer: {FINAL}"
        if not self.native:
            return (
                f"Thought: hm\nAction: {asked[0].tool}\nAction Input: {json.dumps(asked[0].args)}"
            )
        return [self._call(one) for one in asked]

    def _call(self, asked: Asked) -> dict[str, Any]:
        function = {"name": asked.tool, "arguments": json.dumps(asked.args)}
        return {"id": asked.id, "type": "function", "function": function}


class Agent(Looper):
    ends_equal_calls = True

    def build(self, *, native: bool = True, **options: Any) -> None:
        hooks.pop().unregister()
        hooks.append(LoopGuardHooks(**options).register())
        tools = [tool(one.__name__)(one) for one in (self.search, self.fail)]
        for one in tools:
            # CrewAI would give the result of the first call again.
            one.cache_function = lambda *_: False
        model = Model(model="scripted", looper=self, native=native)
        self.agent = crewai.Agent(
            role="looper", goal="-", backstory="-", llm=model, tools=tools, max_iter=70
        )

    def crew(self) -> crewai.Crew:
        task = crewai.Task(description=QUESTION, expected_output="It.", agent=self.agent)
        return crewai.Crew(agents=[self.agent], tasks=[task], cache=False)

    def run(self) -> str:
        return str(self.crew().kickoff().raw)

    def run_in_asyncio(self) -> object:
        return asyncio.run(self.crew().akickoff())


def an_agent_alone() -> object:
    """`Agent.kickoff`, without a crew, ends in the same stop."""
    looper = Agent(always(SEARCH))
    return looper.count(lambda: looper.agent.kickoff(QUESTION))


def a_flow() -> object:
    """What two crews of a flow do counts together."""
    loopers = [Agent(turns([SEARCH], [SEARCH])), Agent(always(SEARCH))]

    class Two(Flow):
        @start()
        def both(self) -> None:
            for looper in loopers:
                looper.run()

    loopers[1].stopped(Two().kickoff)
    return [len(looper.ran) for looper in loopers]


def calls_in_a_text() -> object:
    """OpenInference has no spans of these; they are seen and stopped. CrewAI makes none twice."""
    looper = Agent(lambda turn, _: [search("xy"[turn % 2])], native=False)
    stop = looper.stopped()
    told = str(looper.requests[-1])
    return {"ran": len(looper.ran), "parts": len(stop.parts), "hinted": "Do not repeat" in told}


def blocked_by_another() -> object:
    """A call that a hook of somebody else blocks was not made, and no span says that it was."""

    def block(context: Any) -> bool:
        return context.tool_name != "search"

    looper = Agent(turns([SEARCH]))
    looper.spans.clear()
    register(InterceptionPoint.PRE_TOOL_CALL, block)
    answer = looper.run()
    unregister(InterceptionPoint.PRE_TOOL_CALL, block)
    return {"ran": looper.ran, "answer": answer, "failed": all(looper.failures())}


def registered_twice() -> object:
    """Hooks are registered once, and gone when they were taken away."""
    hooks[0].register()
    counts = [len(get_hooks(point)) for point in InterceptionPoint]
    hooks[0].unregister()
    gone = [len(get_hooks(point)) for point in InterceptionPoint]
    return [sum(counts), sum(gone)]


run.main(Agent, an_agent_alone, a_flow, calls_in_a_text, blocked_by_another, registered_twice)
