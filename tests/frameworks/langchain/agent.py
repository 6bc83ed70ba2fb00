"""LangChain 1.x under the guard; see `tests/frameworks/scripted.py`."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.tools import InjectedToolCallId
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from opentelemetry import trace
from pydantic import BaseModel

from otel_loopguard import LoopGuardAbort, control
from otel_loopguard.core import Kind
from otel_loopguard.dialects import Reader
from otel_loopguard.integrations.langchain import LoopGuardMiddleware
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, paused, turns, two_runs
from tests.frameworks.scripted import Run

run = Run(
    "langchain", "langchain", "langgraph", "openinference-instrumentation-langchain",
    instrumentor="openinference.instrumentation.langchain:LangChainInstrumentor",
)  # fmt: skip
ASKED = {"messages": [("user", QUESTION)]}


class Model(GenericFakeChatModel):
    looper: Any

    def bind_tools(self, tools: Any, **options: Any) -> Model:
        return self

    def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
        asked = self.looper.asked([(one.type, str(one.content)) for one in messages])
        calls = [{"name": one.tool, "args": one.args, "id": one.id} for one in asked]
        said = AIMessage("" if calls else FINAL, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


class Found(BaseModel):
    """What was found."""

    degrees: int


class Agent(Looper):
    def build(
        self, *, saver: Any = None, plain: bool = False, output: Any = None, **options: Any
    ) -> None:
        self.middleware = LoopGuardMiddleware(**options)
        self.model = Model(messages=iter(()), looper=self)
        tools = [tool(one) for one in (self.search, self.fail, self.ask, self.command, self.status)]
        middleware = [] if plain else [self.middleware]
        self.graph = create_agent(
            self.model, tools, middleware=middleware, checkpointer=saver, name="looper",
            response_format=output,
        )  # fmt: skip

    def run(self) -> str:
        return str(self.invoke()["messages"][-1].content)

    def run_limited(self) -> tuple[str, Callable[[], object]]:
        # A model call and a tool call are two steps of a graph.
        steps = {"recursion_limit": 20}
        return GraphRecursionError.__name__, lambda: self.graph.invoke(ASKED, steps)

    def run_in_asyncio(self) -> object:
        return asyncio.run(self.graph.ainvoke(ASKED, {"recursion_limit": 200}))

    def stream(self) -> object:
        return list(self.graph.stream(ASKED, {"recursion_limit": 200}))

    def talk(self, key: str) -> object:
        return self.invoke(thread_id=key)

    def invoke(self, given: Any = ASKED, **configurable: str) -> Any:
        return self.graph.invoke(given, {"configurable": configurable, "recursion_limit": 200})

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


def without_arguments() -> object:
    """That a tool takes none is known from the middleware, whatever the span says."""
    loopers = Agent(always(("status", {}))), Agent(always(("status", {})))
    loopers[0].stopped()
    loopers[1].stopped(loopers[1].run_in_asyncio)
    return [len(one.ran) for one in loopers]


def two_runs_in_one_trace() -> object:
    """Without an instrumentation each has its key; with one both are turns of one session.

    What was counted in the first run weighs half in the second.
    """
    with trace.get_tracer("server").start_as_current_span("POST /"):
        return two_runs(Agent)


class Langfuse(BaseCallbackHandler):
    """Writes spans as the handler of Langfuse does; in asyncio none is current, since it is called
    in a thread."""

    __module__ = "langfuse.langchain"

    def __init__(self) -> None:
        self.open: dict[Any, trace.Span] = {}

    def on_chain_start(self, *_: Any, run_id: Any, **more: Any) -> None:
        self._start(run_id, "chain", **more)

    def on_tool_start(self, tool: Any, *_: Any, run_id: Any, inputs: Any, **more: Any) -> None:
        self._start(run_id, "tool", **{**more, "name": tool["name"]})
        self.open[run_id].set_attribute("langfuse.observation.input", json.dumps(inputs))

    def on_chain_end(self, *_: Any, run_id: Any, **__: Any) -> None:
        self.open.pop(run_id).end()

    def on_tool_end(self, output: Any, *, run_id: Any, **_: Any) -> None:
        self.open[run_id].set_attribute("langfuse.observation.output", str(output.content))
        self.open.pop(run_id).end()

    on_chain_error = on_chain_end

    def _start(
        self, run_id: Any, kind: str, name: str, metadata: Any, parent_run_id: Any = None, **_: Any
    ) -> None:
        above = self.open.get(parent_run_id)
        place = None if above is None else trace.set_span_in_context(above)
        known = {"langfuse.observation.type": kind}
        if thread := metadata.get("thread_id"):
            known["langfuse.trace.metadata.thread_id"] = thread
        tracer = run.provider.get_tracer("langfuse-sdk")
        self.open[run_id] = tracer.start_span(name, place, attributes=known)


def langfuse_in_asyncio() -> object:
    """A run with a thread or without is one session, and its loop is stopped."""

    def ran(**configurable: str) -> list[int]:
        agent = Agent(always(SEARCH))
        how: Any = {"callbacks": [Langfuse()], "configurable": configurable}
        agent.stopped(lambda: asyncio.run(agent.graph.ainvoke(ASKED, how)))
        return [len(agent.ran), len(agent.requests)]

    return [ran(), ran(thread_id="thread-langfuse")]


def hint_in_state() -> object:
    """The hint is in a request only, and not in the graph's state."""
    done = Agent(turns(*[[SEARCH]] * 3)).invoke()
    return "Do not repeat" in str(done["messages"])


def refused_result() -> object:
    """A `ToolMessage` with the id of the call says why it was not made."""
    agent = Agent(always(SEARCH), saver=InMemorySaver())
    agent.stopped(lambda: agent.talk("thread-refused"))
    config = {"configurable": {"thread_id": "thread-refused"}}
    state = agent.graph.get_state(config).values["messages"]
    told = next(one for one in state if getattr(one, "status", "") == "error")
    return {"ran": len(agent.ran), "told": str(told.content)[:8], "id": told.tool_call_id}


def interrupted() -> object:
    """A pause may be an interrupt: the graph goes on where it was, or not, by the answer."""

    def asked(answer: object) -> list[object]:
        key = f"thread-{answer}"
        agent = Agent(paused(key), saver=InMemorySaver(), pause="interrupt")
        first = agent.invoke(thread_id=key)
        reasons = [one.value["reason"] for one in first["__interrupt__"]]
        ran = len(agent.ran)
        try:
            agent.invoke(Command(resume=answer), thread_id=key)
        except LoopGuardAbort as stop:
            return [*reasons, ran, len(agent.ran), str("aborted)" in str(stop))]
        return [*reasons, ran, len(agent.ran), agent.requests[-1][-1][1]]

    return {str(answer): asked(answer) for answer in (True, "Look elsewhere.", "abort")}


def in_a_running_loop() -> object:
    """`invoke` called by a coroutine waits at the gate too, as it would for a model."""
    agent = Agent(paused("thread-loop"), limit_s=30)
    threading.Timer(0.3, control.resume, ["thread-loop"]).start()

    async def call() -> Any:
        return agent.invoke(thread_id="thread-loop")

    return {"answer": asyncio.run(call())["messages"][-1].content, "ran": len(agent.ran)}


def traces(run: Callable[[Agent], Any], **options: Any) -> list[list[str]]:
    """What a run leaves: the spans of each trace, each with the one above, in order of starts."""
    agent = Agent(always(SEARCH), **options)
    agent.spans.clear()
    with suppress(LoopGuardAbort, GraphRecursionError):
        run(agent)
    spans = sorted(agent.spans.get_finished_spans(), key=lambda span: span.start_time or 0)
    names = {span.context.span_id: span.name for span in spans}
    found: dict[int, list[str]] = {}
    for span in spans:
        above = f"{names[span.parent.span_id]} " if span.parent else ""
        told = f"{span.name} < {above}{span.status.status_code.name}"
        found.setdefault(span.context.trace_id, []).append(told)
    return [
        [first, *(f"{len([*equal])} {told}" for told, equal in itertools.groupby(rest))]
        for first, *rest in found.values()
    ]


def one_trace() -> object:
    """Where nothing else writes spans, a run is one trace below the span of its agent."""

    def below_a_span(agent: Agent) -> None:
        with run.provider.get_tracer("app").start_as_current_span("request"):
            agent.run()

    def beside_each_other(agent: Agent) -> None:
        agent.graph.batch([ASKED, ASKED], {"recursion_limit": 5})

    def half_read(agent: Agent) -> None:
        steps = agent.graph.stream(ASKED, {"recursion_limit": 200})
        next(steps)
        steps.close()

    found = {
        "invoke": traces(Agent.run),
        "ainvoke": traces(Agent.run_in_asyncio),
        "too many steps": traces(lambda agent: agent.graph.invoke(ASKED, {"recursion_limit": 3})),
        "half read": traces(half_read),
        "below a span": traces(below_a_span),
        "beside each other": traces(beside_each_other),
        "no spans": traces(Agent.run, spans=False),
    }
    return found if run.bare else {name: len(traces) < 3 for name, traces in found.items()}


def a_tool_that_interrupts() -> object:
    """Its call is put off and did not fail; it is made again when the graph goes on."""
    agent = Agent(turns([("ask", {"query": "May I?"})]), saver=InMemorySaver())
    agent.spans.clear()
    first = agent.invoke(thread_id="thread-ask")
    own = [one for one in agent.spans.get_finished_spans() if one.name.startswith("execute_tool")]
    done = agent.invoke(Command(resume="yes"), thread_id="thread-ask")
    asked = [one.value for one in first["__interrupt__"]]
    status = [span.status.status_code.name for span in own]
    steps = (Reader().read(EndedSpanView(span)) for span in own)
    calls = sum(step is not None and step.kind is Kind.TOOL for step in steps)
    answer = done["messages"][-2].content
    return {"asked": asked, "status": status, "calls": calls, "answer": answer}


def a_tool_that_commands() -> object:
    """A `Command` in place of a result is passed on; the result in it counts."""
    return Agent(always(("command", {"to": "x"}))).count()


def wrong_output() -> object:
    """A model whose structured output is refused each time is stopped; a second try is honest."""
    looper, seen = Agent(always(("Found", {"degrees": "warm"})), output=Found), list[object]()
    seen.append(looper.ended() is not None and len(looper.requests) < 20)
    looper = Agent(
        turns([("Found", {"degrees": "warm"})], [("Found", {"degrees": 21})]), output=Found
    )
    looper.decided.clear()
    return [*seen, looper.invoke()["structured_response"].degrees, *looper.decided]


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
    asked = {"messages": [HumanMessage(QUESTION)]}
    stop = agent.stopped(lambda: graph.compile().invoke(asked, {"recursion_limit": 60}))
    counts = {"ran": len(agent.ran), "parts": len(stop.parts)}
    return {**counts, "told": told[:4], "then": [*{*told[4:]}]}


def branches_of_a_graph() -> object:
    """Five at the same time begin with the same search; five runs of a node go in circles."""

    def ran(build: Callable[[], StateGraph[Any]], thread: str) -> list[str]:
        Agent.decided.clear()
        with suppress(LoopGuardAbort):
            build().compile().invoke(
                {"messages": []}, {"configurable": {"thread_id": thread}, "max_concurrency": 8}
            )
        return [one for one in Agent.decided if "identical_call" in one]

    def together() -> StateGraph[Any]:
        begun, searched = threading.Barrier(5), [threading.Event() for _ in range(6)]
        searched[0].set()

        def branch(number: int) -> object:
            def script(turn: int, _: str) -> list[Any]:
                if turn > 1:
                    searched[number + 1].set()
                    return []
                begun.wait(20)
                searched[number].wait(20)
                return [SEARCH]

            Agent(script).run()
            return {}

        graph = StateGraph(MessagesState).add_node("branch", branch)
        return graph.add_conditional_edges(
            START, lambda _: [Send("branch", number) for number in range(5)], ["branch"]
        )

    def in_turn() -> StateGraph[Any]:
        left = [*range(5)]

        def node(state: MessagesState) -> object:
            left.pop()
            Agent(turns([SEARCH])).run()
            return {}

        graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
        return graph.add_conditional_edges("node", lambda _: "node" if left else END)

    return {"together": ran(together, "thread-fan"), "in_turn": ran(in_turn, "thread-round")}


def adds_no_node() -> object:
    """A limit of steps is reached no sooner than without the middleware."""
    agent = Agent(always())
    plain = create_agent(agent.model, [])
    return sorted(agent.graph.nodes) == sorted({*plain.nodes, "tools"})


run.main(
    Agent, without_arguments, two_runs_in_one_trace, langfuse_in_asyncio, hint_in_state,
    refused_result, interrupted, in_a_running_loop, one_trace, a_tool_that_interrupts,
    a_tool_that_commands, a_graph_of_ones_own, branches_of_a_graph, adds_no_node, wrong_output,
    live=True,
)  # fmt: skip
