"""What the hooks do besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented | --unguarded]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_TESTING": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.flow.flow import Flow, start
from crewai.hooks.dispatch import InterceptionPoint, get_hooks, register, unregister
from crewai.tools import tool

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control
from otel_loopguard.integrations.crewai import LoopGuardHooks
from tests.frameworks.cases import GUARDED, SEARCH, Call, Script, always, exporter, provider, turns

if "--instrumented" in sys.argv:
    from openinference.instrumentation.crewai import CrewAIInstrumentor

    CrewAIInstrumentor().instrument(tracer_provider=provider)

hooks = LoopGuardHooks().register()


class Model(BaseLLM):
    """Asks for what a script says, as calls or as a text, and keeps what it was given."""

    script: Any = None
    native: bool = True
    requests: Any = None

    def supports_function_calling(self) -> bool:
        return self.native

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.requests.append([dict(one) for one in messages])
        turn = len(self.requests)
        asked = self.script(turn)
        if not asked:
            return "Done." if self.native else "Thought: I know.\nFinal Answer: Done."
        if not self.native:
            ((name, args),) = asked
            return f"Thought: hm\nAction: {name}\nAction Input: {json.dumps(args)}"
        return [
            {
                "id": f"call_{turn}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for place, (name, args) in enumerate(asked)
        ]


class Case:
    """An agent whose model follows a script, and what its tools ran."""

    def __init__(self, script: Script, *, native: bool = True) -> None:
        self.ran: list[str] = []
        self.model = Model(model="scripted", script=script, native=native, requests=[])

        @tool("search")
        def search(query: str) -> str:
            """Searches."""
            self.ran.append(query)
            return "No results."

        @tool("fail")
        def fail(query: str) -> str:
            """Fails."""
            self.ran.append(query)
            raise ValueError(query)

        search.cache_function = fail.cache_function = lambda *_: False
        self.agent = Agent(
            role="looper", goal="-", backstory="-", llm=self.model, tools=[search, fail],
            max_iter=40,
        )  # fmt: skip

    def crew(self) -> Crew:
        task = Task(description="Find it.", expected_output="It.", agent=self.agent)
        return Crew(agents=[self.agent], tasks=[task], cache=False)

    def stopped(self, run: Callable[[], object] | None = None) -> LoopGuardAbort:
        try:
            (run or self.crew().kickoff)()
        except LoopGuardAbort as stop:
            return stop
        sys.exit("it was not stopped")

    def told(self) -> list[str]:
        """The results that the model was given."""
        return [one["content"] for one in self.model.requests[-1] if one["role"] == "tool"]


def statuses() -> list[str]:
    spans = [
        one for one in exporter.get_finished_spans() if "search" in one.name or "fail" in one.name
    ]
    return [one.status.status_code.name for one in spans]


def in_asyncio() -> object:
    """`akickoff`: the same as `kickoff`."""
    case = Case(always(SEARCH))
    stop = case.stopped(lambda: asyncio.run(case.crew().akickoff()))
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def an_agent_alone() -> object:
    """`Agent.kickoff`, without a crew."""
    case = Case(always(SEARCH))
    stop = case.stopped(lambda: case.agent.kickoff("Find it."))
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def a_flow() -> object:
    """Two crews in a flow are one run."""
    cases = [Case(turns([SEARCH], [SEARCH])), Case(always(SEARCH))]

    class Two(Flow):
        @start()
        def both(self) -> None:
            for case in cases:
                case.crew().kickoff()

    cases[1].stopped(Two().kickoff)
    return [len(case.ran) for case in cases]


def calls_in_a_text() -> object:
    """A model without calls: they are read out of its text. CrewAI itself makes none twice."""
    case = Case(lambda turn: [("search", {"query": "xy"[turn % 2]})], native=False)
    stop = case.stopped()
    told = str(case.model.requests[-1])
    return {"ran": len(case.ran), "parts": len(stop.parts), "hinted": "Do not repeat" in told}


def two_runs() -> object:
    """One crew, twice, the first run of which is aborted."""
    case = Case(always(SEARCH))
    first = case.stopped()
    ran = len(case.ran)
    case.model.requests.clear()
    second = case.stopped()
    return {"ran": [ran, len(case.ran) - ran], "same": first.session == second.session}


def named() -> object:
    """The session that the context names."""
    case = Case(always(SEARCH))
    with otel_loopguard.session("crew-7"):
        return case.stopped().session


def contract() -> object:
    """Where the hint stands in the request."""
    case = Case(turns(*[[SEARCH]] * 3))
    done = case.crew().kickoff().raw
    (told,) = [one for one in case.model.requests if "Do not repeat" in str(one)]
    roles = [one["role"] for one in told]
    return {
        "end": roles[-3:],
        "hint": told[-1]["content"][:8],
        "assistants": roles.count("assistant"),
        "results": roles.count("tool"),
        "answer": done,
    }


def after_a_deny() -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    other = [("search", {"query": "y"}), ("search", {"query": "z"})]
    case = Case(turns(*[[SEARCH]] * 4, other))
    done = case.crew().kickoff().raw
    return {"ran": sorted(case.ran), "told": case.told()[-2:], "answer": done}


def refused() -> object:
    """What the model is told of a call that was refused."""
    exporter.clear()
    case = Case(turns(*[[SEARCH]] * 5))
    with suppress(LoopGuardAbort):
        case.crew().kickoff()
    return {"ran": len(case.ran), "status": statuses()}


def a_tool_that_fails() -> object:
    """CrewAI tells the model; the span says that it failed."""
    exporter.clear()
    case = Case(turns([("fail", {"query": "broken"})]))
    answer = case.crew().kickoff().raw
    return {"told": case.told(), "status": statuses(), "answer": answer}


def blocked_by_another() -> object:
    """A call that a hook of somebody else blocks was not made."""
    exporter.clear()

    def block(context: Any) -> bool:
        return context.tool_name != "search"

    register(InterceptionPoint.PRE_TOOL_CALL, block)
    case = Case(turns([SEARCH]))
    answer = case.crew().kickoff().raw
    unregister(InterceptionPoint.PRE_TOOL_CALL, block)
    return {"ran": len(case.ran), "answer": answer, "failed": "OK" not in statuses()}


def limit() -> object:
    """A gate has the limit that it was given."""
    hooks.unregister()
    short = LoopGuardHooks(limit_s=0.05).register()

    def script(turn: int) -> Sequence[Call]:
        if turn == 2:
            control.pause("crew-limit", "a person looks at it")
        return [("search", {"query": str(turn)})]

    case = Case(script)
    try:
        with otel_loopguard.session("crew-limit"):
            case.crew().kickoff()
    except LoopGuardPaused as stop:
        return {"ran": len(case.ran), "parts": list(stop.parts)}
    finally:
        short.unregister()
        hooks.register()
    return None


def registered_twice() -> object:
    """It is registered once, and gone when it was taken away."""
    hooks.register()
    counts = [len(get_hooks(point)) for point in InterceptionPoint]
    hooks.unregister()
    gone = [len(get_hooks(point)) for point in InterceptionPoint]
    hooks.register()
    return [sum(counts), sum(gone)]


CASES = (
    in_asyncio, an_agent_alone, a_flow, calls_in_a_text, two_runs, named, contract, after_a_deny,
    refused, a_tool_that_fails, blocked_by_another, limit, registered_twice,
)  # fmt: skip


def unguarded() -> object:
    """Without a guard the crew runs as it would."""
    case = Case(lambda turn: [("search", {"query": str(turn % 9)})] if turn <= 30 else ())
    answer = case.crew().kickoff().raw
    return {"ran": len(case.ran), "answer": answer}


print(json.dumps({case.__name__: case() for case in (CASES if GUARDED else (unguarded,))}))
