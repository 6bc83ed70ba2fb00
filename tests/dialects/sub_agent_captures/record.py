"""Records sub-agents under OpenInference: one that goes round, and one that gets on.

The captures beside this file were written by it, in an environment of their own with Python 3.11:

    pip install -e ".[server]" smolagents==1.26.0 openinference-instrumentation-smolagents==0.1.43 \
        langchain==1.5.2 langgraph==1.2.24 openinference-instrumentation-langchain==0.1.80
    for framework in smolagents langgraph; do
        python -m tests.dialects.sub_agent_captures.record $framework
    done

Of a manager, each of its turns gives a task to the sub-agent; in LangGraph a node does. The models
are lists of answers. What models were sent, their tools and the memory of steps are left out.
"""

# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import sys
from pathlib import Path

from tests.dialects.loop_captures.record import exporting, save, written

TASKS = (
    "Find the weather in Paris", "Find a hotel in Rome near the station",
    "List flights from Oslo on Monday", "Compare train prices to Vienna",
    "Summarise museum hours in Madrid", "Check visa rules for Japan",
)  # fmt: skip
ANSWERS = (
    "It rains at 12 degrees.", "Hotel Termini asks 90 euros.", "SK 4671 leaves at 08:10.",
    "It is 39 euros, or 29 by bus.", "The Prado opens from ten to eight.",
    "No visa is needed for 90 days.",
)  # fmt: skip
STUCK = (TASKS[:1] * len(TASKS), ["I could not find it."] * len(TASKS))


def smolagents(tasks, answers):
    from openinference.instrumentation.smolagents import SmolagentsInstrumentor
    from smolagents import ToolCallingAgent
    from smolagents.models import (
        ChatMessage,
        ChatMessageToolCall,
        ChatMessageToolCallFunction,
        Model,
    )
    from smolagents.monitoring import TokenUsage

    class Scripted(Model):
        def __init__(self, calls):
            super().__init__(model_id="scripted-model")
            self.calls = iter(enumerate(calls))

        def generate(self, messages, **_):
            number, (tool, args) = next(self.calls)
            asked = ChatMessageToolCallFunction(name=tool, arguments=args)
            call = ChatMessageToolCall(id=f"call_{number}", type="function", function=asked)
            usage = TokenUsage(100, 12)
            return ChatMessage(role="assistant", tool_calls=[call], token_usage=usage)

    def agent(name, calls, **more):
        common = {"tools": [], "description": name, "verbosity_level": 0, "max_steps": 9}
        return ToolCallingAgent(model=Scripted(calls), name=name, **common, **more)

    SmolagentsInstrumentor().instrument()
    researcher = agent("researcher", [("final_answer", {"answer": one}) for one in answers])
    given = [("researcher", {"task": one}) for one in tasks]
    manager = agent(
        "manager", [*given, ("final_answer", {"answer": "ok"})], managed_agents=[researcher]
    )
    manager.run("Plan my trip")


def langgraph(tasks, answers):
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, StateGraph
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument()
    model = FakeMessagesListChatModel(responses=[AIMessage(one) for one in answers])
    researcher = create_agent(model, [], name="researcher")

    def work(done):
        researcher.invoke({"messages": [{"role": "user", "content": tasks[done["number"]]}]})
        return {"number": done["number"] + 1}

    graph = StateGraph(dict).add_node("work", work).add_edge(START, "work")
    graph.add_conditional_edges(
        "work", lambda done: END if done["number"] == len(tasks) else "work"
    )
    graph.compile(name="flow").invoke({"number": 0}, {"configurable": {"thread_id": "t-1"}})


_LEFT_OUT = ("llm.", "smolagents.", "graph.", "input.mime_type", "output.mime_type")
_TOKENS = ("llm.token_count.prompt", "llm.token_count.completion", "llm.model_name")


def main(framework):
    memory = exporting()
    for name, script in (("stuck", STUCK), ("fine", (TASKS, ANSWERS))):
        globals()[framework](*script)
        place = Path(__file__).parent / f"{framework}-{name}.json"
        save(place, map(kept, memory.get_finished_spans()))
        memory.clear()


def kept(span):
    agent = span.attributes["openinference.span.kind"] in ("AGENT", "CHAIN", "TOOL")
    values = ("input.value", "output.value") if agent and "Step" not in span.name else ()
    said = {key: span.attributes[key] for key in values if key in span.attributes}
    found = written(span)
    own = {
        key: one
        for key, one in found["attributes"].items()
        if key in _TOKENS or not key.startswith(_LEFT_OUT)
    }
    return {**found, "attributes": {**own, **said}}


if __name__ == "__main__":
    main(*sys.argv[1:])
