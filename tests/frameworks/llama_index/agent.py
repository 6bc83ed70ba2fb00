"""A `FunctionAgent` of LlamaIndex under its adapter; see tests/frameworks/scripted.py."""

import asyncio
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from otel_loopguard.core import Kind
from otel_loopguard.dialects import Reader
from otel_loopguard.integrations.llama_index import guarded
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Looper, always, turns
from tests.frameworks.scripted import Run

run = Run(
    "llama_index", "llama-index-core", "openinference-instrumentation-llama-index",
    instrumentor="openinference.instrumentation.llama_index:LlamaIndexInstrumentor",
)  # fmt: skip


class Model(MockLLM, FunctionCallingLLM):
    looper: Any = None

    @property
    def metadata(self) -> Any:
        return super().metadata.model_copy(update={"is_function_calling_model": True})

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **_: Any) -> Any:
        return {"messages": chat_history}

    async def achat(self, messages: Any, **_: Any) -> ChatResponse:
        asked = self.looper.asked([(one.role.value, str(one.content)) for one in messages])
        said = ChatMessage(role="assistant", content="" if asked else FINAL)
        said.additional_kwargs["calls"] = [(one.id, one.tool, one.args) for one in asked]
        return ChatResponse(message=said)

    def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[ToolSelection]:
        return [
            ToolSelection(tool_id=key, tool_name=tool, tool_kwargs=args)
            for key, tool, args in response.message.additional_kwargs["calls"]
        ]


class Agent(Looper):
    named = ("FunctionTool.acall",)

    def build(self, **options: Any) -> None:
        self.model = Model()
        self.model.looper = self
        tools = [self.search, self.fail, self.noted]
        bare = FunctionAgent(
            name="looper", description="Looks.", llm=self.model, streaming=False, tools=tools
        )
        # Guarded twice it is as if once.
        self.agent: Any = guarded(guarded(bare, **options))

    async def noted(self, ctx: Context, query: str) -> str:
        """Takes the context of the workflow."""
        self.ran.append(query)
        await ctx.store.set("query", query)
        return "No results were noted."

    def run(self) -> str:
        async def work() -> str:
            return str(await self.agent.run(QUESTION, max_iterations=70))

        return asyncio.run(work())


def a_workflow() -> object:
    """An `AgentWorkflow` is guarded with all its agents."""
    looper = Agent(always(SEARCH))
    agent = FunctionAgent(
        name="other", description="Looks.", llm=looper.model, tools=[looper.search], streaming=False
    )
    looper.agent = guarded(AgentWorkflow(agents=[agent], root_agent="other"))
    return looper.count()


def a_tool_that_takes_the_context() -> object:
    """It gets the workflow's context, which is no argument of the loop."""
    return Agent(always(("noted", {"query": "x"}))).count()


def a_tool_that_waits() -> object:
    """It asks a person, and is called anew with the answer: one call, which did not fail."""
    looper = Agent(turns([("ask", {"query": "May I?"})]))

    async def ask(ctx: Context, query: str) -> str:
        """Asks a person."""
        told = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent())
        return str(told.response)

    async def work() -> None:
        handler = guarded(agent).run(QUESTION)
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    agent = FunctionAgent(name="asking", llm=looper.model, tools=[ask], streaming=False)
    looper.spans.clear()
    asyncio.run(work())
    steps = [Reader().read(EndedSpanView(span)) for span in looper.spans.get_finished_spans()]
    return [step.error for step in steps if step is not None and step.kind is Kind.TOOL]


run.main(Agent, a_workflow, a_tool_that_takes_the_context, a_tool_that_waits)
