"""Turns of conversations in a real framework: one JSON object, a case by name.

python turns.py langchain|openai_agents|pydantic_ai [--instrumented]
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, session

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

NAME, INSTRUMENTED = sys.argv[1], "--instrumented" in sys.argv
ANSWER = "sunny and warm in Paris, 21 degrees, light wind from the west"
decisions: list[Decision] = []
guard = LoopGuard(on_decision=lambda _, found: decisions.append(found))
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
ran: list[str] = []
asked: list[int] = []


def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return ANSWER


def calls_again() -> bool:
    """Whether the model asks for one more call in this turn."""
    asked[0] -= 1
    return asked[0] >= 0


def langchain() -> Callable[[], None]:
    """An agent of LangChain; its thread is new in every turn."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    from otel_loopguard.integrations.langchain import LoopGuardMiddleware

    if INSTRUMENTED:
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument(tracer_provider=provider)

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Scripted:
            return self

        def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
            call = {"name": "search", "args": {"query": "x"}, "id": uuid.uuid4().hex}
            said = AIMessage("", tool_calls=[call]) if calls_again() else AIMessage("Done.")
            return ChatResult(generations=[ChatGeneration(message=said)])

    agent = create_agent(
        Scripted(messages=iter(())), [search], middleware=[LoopGuardMiddleware()], name="looper"
    )
    return lambda: agent.invoke({"messages": [("user", "?")]}, {"recursion_limit": 200})


def pydantic_ai() -> Callable[[], None]:
    """An agent of pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability

    if INSTRUMENTED:
        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))

    def model(messages: Any, info: Any) -> ModelResponse:
        again = calls_again()
        return ModelResponse([ToolCallPart("search", {"query": "x"}) if again else TextPart("Ok.")])

    agent = Agent(FunctionModel(model), name="looper", capabilities=[LoopGuardCapability()])
    agent.tool_plain(search)
    return lambda: agent.run_sync("?")


def openai_agents() -> Callable[[], None]:
    """An agent of the OpenAI Agents SDK."""
    from agents import (
        Agent,
        Model,
        ModelResponse,
        Runner,
        Usage,
        function_tool,
        set_trace_processors,
    )
    from agents import trace as traced
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from otel_loopguard.integrations.openai_agents import LoopGuardHooks

    set_trace_processors([])
    if INSTRUMENTED:
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

    class Scripted(Model):
        async def get_response(self, *_args: Any, **_options: Any) -> ModelResponse:
            if calls_again():
                said: Any = ResponseFunctionToolCall(
                    arguments='{"query": "x"}', call_id=uuid.uuid4().hex, name="search",
                    type="function_call",
                )  # fmt: skip
            else:
                text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
                said = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_options: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="looper", model=Scripted(), tools=[function_tool(search)])
    # The SDK's own trace, around any number of runs.
    outer[0] = lambda: traced("chat")
    return lambda: Runner.run_sync(agent, "?", hooks=LoopGuardHooks(), max_turns=100)


outer: list[Callable[[], AbstractContextManager[Any]]] = [
    lambda: trace.get_tracer("my.app").start_as_current_span("chat")
]
run = {"langchain": langchain, "pydantic_ai": pydantic_ai, "openai_agents": openai_agents}[NAME]()


def turn(times: int) -> int:
    """One run, in which the model asks for the same call so many times; how many were made."""
    asked[:], before = [times], len(ran)
    try:
        run()
    except LoopGuardAbort:
        return before - len(ran)
    return len(ran) - before


def told() -> list[str]:
    """What was decided since it was asked last, but notes."""
    found = [one.action.value for one in decisions if one.action.rank]
    decisions.clear()
    return found


def case(inside: Callable[[], AbstractContextManager[Any]], around: Callable[[], Any]) -> object:
    """Twelve turns with the same question, a stuck one (negative: it was stopped), and two more."""
    with around():
        made: list[int] = []
        for _ in range(12):
            with inside():
                made.append(turn(1))
        before = told()
        with inside():
            stuck = turn(20)
        with inside():
            after = [turn(1)]
        with inside():
            after.append(turn(1))
    told()
    return {"made": sum(made), "told": before, "stuck": stuck < 0, "after": after}


def each() -> AbstractContextManager[Any]:
    """The session of a chat, entered anew in every turn."""
    return session(f"chat {NAME} {INSTRUMENTED}")


said = {
    "each": case(each, nullcontext),
    "once": case(nullcontext, lambda: session(f"job {NAME} {INSTRUMENTED}")),
    "both": case(lambda: session(f"both {NAME} {INSTRUMENTED}"), outer[0]),
}
if INSTRUMENTED:
    said["outer"] = case(nullcontext, outer[0])
print(json.dumps(said))
