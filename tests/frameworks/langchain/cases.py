"""What the middleware does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented | --unguarded]
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.tools import InjectedToolCallId
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from opentelemetry import trace

from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control
from otel_loopguard.integrations.langchain import LoopGuardMiddleware
from tests.frameworks.cases import GUARDED, exporter, provider

if "--instrumented" in sys.argv:
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=provider)

Call = tuple[str, dict[str, Any]]
SEARCH: Call = ("search", {"query": "x"})
QUESTION = {"messages": [("user", "Find it.")]}
Script = Callable[[Sequence[BaseMessage], int], Sequence[Call]]


class Model(GenericFakeChatModel):
    """Asks for what a script says, and keeps what it was given."""

    script: Any
    requests: list[list[BaseMessage]]

    def bind_tools(self, tools: Any, **options: Any) -> Model:
        return self

    def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
        self.requests.append(list(messages))
        turn = len(self.requests)
        calls = [
            {"name": name, "args": args, "id": f"call_{turn}_{place}"}
            for place, (name, args) in enumerate(self.script(messages, turn))
        ]
        said = AIMessage("" if calls else "Done.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


class Agent:
    """An agent whose model follows a script."""

    def __init__(self, script: Script, *, saver: Any = None, **options: Any) -> None:
        self.ran: list[str] = []
        self.model = Model(messages=iter(()), script=script, requests=[])
        self.middleware = LoopGuardMiddleware(**options)
        tools = [tool(one) for one in (self.search, self.fail, self.ask, self.command, self.status)]
        self.graph = create_agent(
            self.model, tools, middleware=[self.middleware], checkpointer=saver, name="looper"
        )

    def search(self, query: str) -> str:
        """Searches."""
        self.ran.append(query)
        return "No results."

    def fail(self, query: str) -> str:
        """Fails."""
        self.ran.append(query)
        raise ValueError(query)

    def ask(self, query: str) -> str:
        """Asks a person."""
        self.ran.append(query)
        return f"A person said {interrupt(query)}."

    def status(self) -> str:
        """Says what was found."""
        self.ran.append("")
        return "Nothing was found."

    def command(self, to: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Answers with a command."""
        self.ran.append(to)
        return Command(update={"messages": [ToolMessage("Not found.", tool_call_id=call_id)]})

    def run(self, given: Any = QUESTION, **configurable: str) -> Any:
        return self.graph.invoke(given, {"configurable": configurable, "recursion_limit": 200})

    def stopped(self, **configurable: str) -> LoopGuardAbort:
        try:
            self.run(**configurable)
        except LoopGuardAbort as stop:
            return stop
        sys.exit("it was not stopped")


def always(*calls: Call) -> Script:
    """Asks for the same calls for ever, or at least for thirty turns."""
    return lambda _, turn: calls if turn <= 30 else ()


def turns(*asked: Sequence[Call]) -> Script:
    """Asks for these calls turn by turn, then answers."""
    return lambda _, turn: asked[turn - 1] if turn <= len(asked) else ()


def tool_spans() -> list[Any]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith("execute_tool")]


def in_asyncio() -> object:
    """`ainvoke`: the same as `invoke`."""
    agent = Agent(always(SEARCH))
    try:
        asyncio.run(agent.graph.ainvoke(QUESTION, {"recursion_limit": 200}))
    except LoopGuardAbort as stop:
        return {"ran": len(agent.ran), "parts": list(stop.parts)}
    return None


def without_arguments() -> object:
    """A tool that takes none, which OpenInference does not say."""
    agent = Agent(always(("status", {})))
    agent.stopped()
    return len(agent.ran)


def without_arguments_in_asyncio() -> object:
    """The same with `ainvoke`."""
    agent = Agent(always(("status", {})))
    try:
        asyncio.run(agent.graph.ainvoke(QUESTION, {"recursion_limit": 200}))
    except LoopGuardAbort:
        return len(agent.ran)
    return None


def two_runs() -> object:
    """Two runs of one agent without any id, the first of which is aborted."""
    agent = Agent(always(SEARCH))
    first = agent.stopped()
    ran = len(agent.ran)
    second = agent.stopped()
    return {"ran": [ran, len(agent.ran) - ran], "same": first.session == second.session}


def two_runs_in_one_trace() -> object:
    """As `two_runs`, below one span that is not the agents'."""
    with trace.get_tracer("server").start_as_current_span("POST /"):
        return two_runs()


def thread() -> object:
    """The session of a run with a thread id is the thread."""
    return Agent(always(SEARCH)).stopped(thread_id="thread-7").session


def next_turn() -> object:
    """A thread that was aborted goes on with the user's next turn."""
    agent = Agent(lambda messages, _: [SEARCH] if messages[-1].content != "Thanks." else [])
    agent.stopped(thread_id="thread-8")
    done = agent.run({"messages": [("user", "Thanks.")]}, thread_id="thread-8")
    return done["messages"][-1].content


def contract() -> object:
    """Where the hint stands in the request, and that it is not in the graph's state."""
    agent = Agent(turns(*[[SEARCH]] * 3))
    done = agent.run()
    (told,) = [one for one in agent.model.requests if "Do not repeat" in str(one)]
    return {
        "last": [type(told[-1]).__name__, told[-1].content[:8]],
        "before": type(told[-2]).__name__,
        "answered": all(
            isinstance(after, ToolMessage)
            for before, after in itertools.pairwise(told)
            if isinstance(before, AIMessage) and before.tool_calls
        ),
        "in state": "Do not repeat" in str(done["messages"]),
        "answer": done["messages"][-1].content,
    }


def after_a_deny() -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    other = [("search", {"query": "y"}), ("search", {"query": "z"})]
    agent = Agent(turns(*[[SEARCH]] * 4, other))
    done = agent.run()
    last = [one for one in done["messages"] if isinstance(one, ToolMessage)][-2:]
    return {
        "ran": sorted(agent.ran),
        "status": [one.status for one in last],
        "answer": done["messages"][-1].content,
    }


def refused() -> object:
    """What stands in place of the result of a call that was refused."""
    agent = Agent(always(SEARCH), saver=InMemorySaver())
    agent.stopped(thread_id="thread-refused")
    config = {"configurable": {"thread_id": "thread-refused"}}
    state = agent.graph.get_state(config).values["messages"]
    told = next(one for one in state if getattr(one, "status", "") == "error")
    return {"ran": len(agent.ran), "told": str(told.content)[:8], "id": told.tool_call_id}


def interrupted(answer: object) -> object:
    """A paused run ends its call with an interrupt, and goes on, or not, by the answer."""
    key = f"thread-{answer}"
    script: Script = lambda _, turn: paused(key, turn)  # noqa: E731
    agent = Agent(script, saver=InMemorySaver(), pause="interrupt")
    first = agent.run(thread_id=key)
    asked = [one.value for one in first["__interrupt__"]]
    ran = len(agent.ran)
    try:
        done = agent.run(Command(resume=answer), thread_id=key)
    except LoopGuardAbort as stop:
        return {"asked": asked, "ran": [ran, len(agent.ran)], "stop": str(stop)}
    heard = [str(one[-1].content) for one in agent.model.requests]
    return {
        "asked": asked,
        "ran": [ran, len(agent.ran)],
        "answer": done["messages"][-1].content,
        "told": heard[-1],
    }


def paused(key: str, turn: int) -> Sequence[Call]:
    """Two searches; somebody pauses the run while the model says what the second is."""
    if turn == 2:
        control.pause(key, "a person looks at it")
    return [("search", {"query": str(turn)})] if turn <= 2 else []


def continued() -> object:
    return interrupted(True)


def guided() -> object:
    return interrupted("Look elsewhere.")


def aborted() -> object:
    return interrupted("abort")


def limit() -> object:
    """A gate has the limit that it was given."""
    agent = Agent(lambda _, turn: paused("thread-limit", turn), limit_s=0.05)
    try:
        agent.run(thread_id="thread-limit")
    except LoopGuardPaused as stop:
        return {"ran": len(agent.ran), "parts": list(stop.parts)}
    return None


def in_a_running_loop() -> object:
    """`invoke` called by a coroutine waits at the gate too; it blocks the loop anyhow."""
    agent = Agent(lambda _, turn: paused("thread-loop", turn), limit_s=30)
    threading.Timer(0.3, control.resume, ["thread-loop"]).start()

    async def call() -> Any:
        return agent.run(thread_id="thread-loop")

    return {"answer": asyncio.run(call())["messages"][-1].content, "ran": len(agent.ran)}


def traces(run: Callable[[Agent], Any], **options: Any) -> list[list[list[str]]]:
    """What a run leaves: the spans of each trace, each with the one above, in order of starts."""
    exporter.clear()
    with suppress(LoopGuardAbort, GraphRecursionError):
        run(Agent(always(SEARCH), **options))
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in spans}
    found: dict[int, list[list[str]]] = {}
    for span in spans:
        above = names[span.parent.span_id] if span.parent else ""
        found.setdefault(span.context.trace_id, []).append(
            [span.name, above, span.status.status_code.name]
        )
    return list(found.values())


def one_trace() -> object:
    """Where nothing else writes spans, a run is one trace below the span of its agent."""
    looped = {"recursion_limit": 200}

    def below_a_span(agent: Agent) -> None:
        with provider.get_tracer("app").start_as_current_span("request"):
            agent.run()

    def beside_each_other(agent: Agent) -> None:
        for _ in agent.graph.batch([QUESTION, QUESTION], {"recursion_limit": 5}):
            pass

    def half_read(agent: Agent) -> None:
        steps = agent.graph.stream(QUESTION, looped)
        next(steps)
        steps.close()

    return {
        "invoke": traces(lambda agent: agent.run()),
        "ainvoke": traces(lambda agent: asyncio.run(agent.graph.ainvoke(QUESTION, looped))),
        "too many steps": traces(
            lambda agent: agent.graph.invoke(QUESTION, {"recursion_limit": 3})
        ),
        "half read": traces(half_read),
        "below a span": traces(below_a_span),
        "beside each other": traces(beside_each_other),
        "no spans": traces(lambda agent: agent.run(), spans=False),
    }


def a_tool_that_interrupts() -> object:
    """Its call is put off and did not fail; it is made again when the graph goes on."""
    exporter.clear()
    agent = Agent(turns([("ask", {"query": "May I?"})]), saver=InMemorySaver())
    first = agent.run(thread_id="thread-ask")
    status = [span.status.status_code.name for span in tool_spans()]
    done = agent.run(Command(resume="yes"), thread_id="thread-ask")
    return {
        "asked": [one.value for one in first["__interrupt__"]],
        "status": status,
        "answer": done["messages"][-2].content,
    }


def a_tool_that_fails() -> object:
    """What a tool raises comes out as without the middleware."""
    exporter.clear()
    agent = Agent(turns([("fail", {"query": "broken"})]))
    try:
        agent.run()
    except ValueError as error:
        return {
            "raised": str(error),
            "status": [span.status.status_code.name for span in tool_spans()],
        }
    return None


def a_tool_that_commands() -> object:
    """A `Command` in place of a result is passed on; the result in it counts."""
    agent = Agent(always(("command", {"to": "x"})))
    stop = agent.stopped()
    return {"ran": len(agent.ran), "parts": list(stop.parts)}


def a_graph_of_ones_own() -> object:
    """A `ToolNode` takes the middleware's hook: calls of a denied loop are refused."""
    agent = Agent(always(SEARCH))
    node = ToolNode([tool(agent.search)], wrap_tool_call=agent.middleware.wrap_tool_call)
    told: list[str] = []

    def model(state: MessagesState) -> Any:
        told.extend(one.status for one in state["messages"][-1:] if isinstance(one, ToolMessage))
        return {"messages": [agent.model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", node)
    graph = graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", "model")
    try:
        graph.compile().invoke({"messages": [HumanMessage("Find it.")]}, {"recursion_limit": 60})
    except LoopGuardAbort as stop:
        return {"ran": len(agent.ran), "told": told, "parts": len(stop.parts)}
    return None


def nodes() -> object:
    """The middleware adds no node to the graph, so none to its limit of steps."""
    plain = create_agent(Model(messages=iter(()), script=always(), requests=[]), [])
    return sorted(Agent(always()).graph.nodes) == sorted({*plain.nodes, "tools"})


CASES = (
    in_asyncio, without_arguments, without_arguments_in_asyncio, two_runs, two_runs_in_one_trace,
    thread, next_turn, contract, after_a_deny, refused, continued, guided, aborted, limit,
    in_a_running_loop, one_trace, a_tool_that_interrupts, a_tool_that_fails, a_tool_that_commands,
    a_graph_of_ones_own, nodes,
)  # fmt: skip


def unguarded() -> object:
    """Without a guard the agent runs as it would."""
    agent = Agent(always(SEARCH))
    answer = agent.run()["messages"][-1].content
    return {"ran": len(agent.ran), "answer": answer}


print(json.dumps({case.__name__: case() for case in (CASES if GUARDED else (unguarded,))}))
