"""A LangGraph graph whose two nodes go round thirty times, asking for a page each time.

Run with one argument: `stuck` asks for the same page, `learning` for another one each time. Prints
one JSON object: the visits that the guard saw, its decisions, and its faults.
"""

import json
import sys
from typing import TypedDict

from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings

TURNS = 30
learning = sys.argv[1] == "learning"
visits, decisions = [], []
# What looks at the calls themselves would stop it sooner.
guard = LoopGuard(
    Settings(switched_off=frozenset(sys.argv[2:])),
    on_step=lambda _, __, step: visits.append(step.name) if step.kind == "node" else 0,
    on_decision=lambda _, one: decisions.append([one.detector, one.action.value, len(visits)]),
)
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
LangChainInstrumentor().instrument(tracer_provider=provider)


@tool
def read_page(page: int) -> str:
    """Reads a page."""
    return f"Page {page} tells of subject number {page}. " * 20


class State(TypedDict):
    """What the nodes hand on."""

    page: int


rounds = iter(range(TURNS))


def choose(state: State) -> State:
    return {"page": state["page"] + 1 if learning else 1}


def read(state: State) -> State:
    read_page.invoke({"page": state["page"]})
    return {"page": state["page"]}


graph = StateGraph(State)
graph.add_node("choose", choose)
graph.add_node("read", read)
graph.add_edge(START, "choose")
graph.add_edge("choose", "read")
graph.add_conditional_edges("read", lambda _: "choose" if next(rounds, None) is not None else END)
graph.compile().invoke({"page": 0}, {"recursion_limit": 200})
guard.settle()
print(json.dumps([visits, decisions, dict(guard.faults.counts)]))
