"""LangGraph under OpenInference: a node of a graph of one's own asks the guard, by its own hand.

Run with one argument: `thread` invokes with a `thread_id`, `run` without, `async` in asyncio with
one, `unseen` without any instrumentation, while another session is aborted. Prints one JSON object.
"""

import asyncio
import json
import sys
from typing import TypedDict

from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, control

way = sys.argv[1]
guard = LoopGuard()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
if way != "unseen":
    LangChainInstrumentor().instrument(tracer_provider=provider)
else:
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


def ask(state: State) -> State:
    control.check()
    if said := control.hint():
        told.append(said)
    return {"turns": state["turns"] + 1}


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
graph.add_node("act", act)
graph.add_edge(START, "ask")
graph.add_edge("ask", "act")
graph.add_conditional_edges("act", lambda state: "ask" if state["turns"] < 12 else END)
config = {"recursion_limit": 60}
if way in ("thread", "async"):
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
