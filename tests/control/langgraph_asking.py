"""LangGraph under OpenInference: a node of a graph of one's own asks the guard, by its own hand.

Run with one argument: `thread` invokes with a `thread_id`, `run` without, `async` in asyncio with
one, `adapter` without any instrumentation behind the middleware, and `unseen` without both, while
another session is aborted; `early` and `lost` are the last two with a `thread_id`, while another
session is aborted. Prints one JSON object.
"""

import asyncio
import json
import sys
from typing import TypedDict

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, control
from otel_loopguard.integrations.langchain import LoopGuardMiddleware

way = sys.argv[1]
guard = LoopGuard()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
if way in ("thread", "run", "async"):
    LangChainInstrumentor().instrument(tracer_provider=provider)
elif way != "adapter":
    guard.bind(1, "another")
    control.abort("another")
told, ran, refused = [], [], []


@tool
def search(query: str) -> str:
    """Finds nothing."""
    ran.append(query)
    return "No results."


class State(TypedDict):
    """What the nodes hand on."""

    turns: int
    messages: list[AIMessage]


def ask(state: State) -> State:
    control.check()
    if said := control.hint():
        told.append(said)
    call = {"name": "search", "args": {"query": "x"}, "id": str(state["turns"])}
    return {"turns": state["turns"] + 1, "messages": [AIMessage("", tool_calls=[call])]}


def act(state: State) -> State:
    refusal = control.refused("search", {"query": "x"})
    if refusal is not None:
        refused.append(refusal.action.value)
        return state
    search.invoke({"query": "x"})
    return state


async def ask_later(state: State) -> State:
    await control.gate()
    return ask(state)


graph = StateGraph(State)
graph.add_node("ask", ask_later if way == "async" else ask)
calls = LoopGuardMiddleware(tracer_provider=provider).wrap_tool_call
by_adapter = way in ("adapter", "early")
graph.add_node("act", ToolNode([search], wrap_tool_call=calls) if by_adapter else act)
graph.add_edge(START, "ask")
graph.add_edge("ask", "act")
graph.add_conditional_edges("act", lambda state: "ask" if state["turns"] < 12 else END)
config = {"recursion_limit": 60}
if way not in ("run", "adapter", "unseen"):
    config["configurable"] = {"thread_id": "thread-1"}
made = graph.compile()
stop = None
try:
    if way == "async":
        asyncio.run(made.ainvoke({"turns": 0}, config))
    else:
        made.invoke({"turns": 0}, config)
except LoopGuardAbort as error:
    stop = error.session
print(json.dumps({"told": len(told), "ran": len(ran), "refused": refused, "stop": stop}))
