"""What a guarded agent does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented | --unguarded]
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.workflow import Context

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control
from otel_loopguard.integrations.llama_index import guarded
from tests.frameworks.cases import GUARDED, SEARCH, Call, Script, always, exporter, provider, turns

if "--instrumented" in sys.argv:
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    LlamaIndexInstrumentor().instrument(tracer_provider=provider)


class Model(MockLLM, FunctionCallingLLM):
    """Asks for what a script says, and keeps what it was given."""

    script: Any = None
    requests: Any = None

    @property
    def metadata(self) -> Any:
        return super().metadata.model_copy(update={"is_function_calling_model": True})

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **_: Any) -> Any:
        return {"messages": chat_history}

    async def achat(self, messages: Any, **_: Any) -> ChatResponse:
        self.requests.append([(one.role.value, str(one.content)) for one in messages])
        asked = self.script(len(self.requests))
        said = ChatMessage(role="assistant", content="" if asked else "Done.")
        said.additional_kwargs["calls"] = asked
        return ChatResponse(message=said)

    def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[ToolSelection]:
        calls = response.message.additional_kwargs["calls"]
        return [
            ToolSelection(tool_id=f"{len(self.requests)}_{place}", tool_name=name, tool_kwargs=args)
            for place, (name, args) in enumerate(calls)
        ]


class Case:
    """An agent whose model follows a script, and what its tools ran."""

    def __init__(self, script: Script, **options: Any) -> None:
        self.ran: list[str] = []
        self.model = Model()
        self.model.script, self.model.requests = script, []
        self.bare = FunctionAgent(
            name="looper", description="Looks.", llm=self.model, streaming=False,
            tools=[self.search, self.fail, self.noted],
        )  # fmt: skip
        self.agent = guarded(self.bare, **options)

    def search(self, query: str) -> str:
        """Searches."""
        self.ran.append(query)
        return "No results."

    def fail(self, query: str) -> str:
        """Fails."""
        self.ran.append(query)
        raise ValueError(query)

    async def noted(self, ctx: Context, query: str) -> str:
        """Takes the context of the workflow."""
        self.ran.append(query)
        await ctx.store.set("query", query)
        return "No results were noted."

    def run(self, agent: Any = None) -> str:
        async def work() -> str:
            return str(await (agent or self.agent).run("Find it.", max_iterations=50))

        return asyncio.run(work())

    def stopped(self, agent: Any = None) -> LoopGuardAbort:
        try:
            self.run(agent)
        except LoopGuardAbort as stop:
            return stop
        sys.exit("it was not stopped")


def a_workflow() -> object:
    """An `AgentWorkflow`, whose agents are guarded with it."""
    case = Case(always(SEARCH))
    agent = FunctionAgent(
        name="other", description="Looks.", llm=case.model, tools=[case.search], streaming=False
    )
    stop = case.stopped(guarded(AgentWorkflow(agents=[agent], root_agent="other")))
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def a_tool_that_takes_the_context() -> object:
    """It gets it, and its loop is stopped."""
    case = Case(always(("noted", {"query": "x"})))
    stop = case.stopped()
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def two_runs() -> object:
    """One agent, twice, the first run of which is aborted."""
    case = Case(always(SEARCH))
    first = case.stopped()
    ran = len(case.ran)
    case.model.requests.clear()
    second = case.stopped()
    return {"ran": [ran, len(case.ran) - ran], "same": first.session == second.session}


def named() -> object:
    """The session that the context names."""
    case = Case(always(SEARCH))
    with otel_loopguard.session("llama-7"):
        return case.stopped().session


def contract() -> object:
    """Where the hint stands in the request, and that it stays in the history."""
    case = Case(turns(*[[SEARCH]] * 4))
    done = case.run()
    told = [one for one in case.model.requests if "Do not repeat" in str(one)]
    return {"end": [role for role, _ in told[0]][-3:], "requests": len(told), "answer": done}


def after_a_deny() -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    other = [("search", {"query": "y"}), ("search", {"query": "z"})]
    case = Case(turns(*[[SEARCH]] * 4, other))
    done = case.run()
    return {"ran": sorted(case.ran), "answer": done}


def refused() -> object:
    """A refused call has a span of its own, which failed."""
    exporter.clear()
    case = Case(always(SEARCH))
    case.stopped()
    names = {"execute_tool search", "FunctionTool.acall"}
    ours = [one for one in exporter.get_finished_spans() if one.name in names]
    return {
        "ran": len(case.ran),
        "failed": [one.status.status_code.name == "ERROR" for one in ours],
    }


def a_tool_that_fails() -> object:
    """LlamaIndex tells the model, as without the guard."""
    case = Case(turns([("fail", {"query": "broken"})]))
    done = case.run()
    return {"ran": case.ran, "told": case.model.requests[-1][-1], "answer": done}


def limit() -> object:
    """A gate has the limit that it was given."""

    def script(turn: int) -> Sequence[Call]:
        if turn == 2:
            control.pause("llama-limit", "a person looks at it")
        return [("search", {"query": str(turn)})]

    case = Case(script, limit_s=0.05)
    try:
        with otel_loopguard.session("llama-limit"):
            case.run()
    except LoopGuardPaused as stop:
        return {"ran": len(case.ran), "parts": list(stop.parts)}
    return None


CASES = (
    a_workflow, a_tool_that_takes_the_context, two_runs, named, contract, after_a_deny, refused,
    a_tool_that_fails, limit,
)  # fmt: skip


def unguarded() -> object:
    """Without a guard the agent runs as it would, guarded twice too."""
    case = Case(always(SEARCH))
    answer = case.run(guarded(case.agent))
    return {"ran": len(case.ran), "answer": answer}


print(json.dumps({case.__name__: case() for case in (CASES if GUARDED else (unguarded,))}))
