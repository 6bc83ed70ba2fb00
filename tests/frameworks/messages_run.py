"""A pydantic-ai or LangGraph agent that asks for six searches, seen with and without tool spans.

Run with two arguments: `pydantic_ai` or `langgraph`, and `whole` or `models`. Prints one JSON
object: dialect, name, arguments and outcome of each call that the guard counted, and its faults.
"""

import json
import sys

from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.core import Kind
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.sdk_views import EndedSpanView

FRAMEWORK, WHAT = sys.argv[1:]
WORDS = ["one", "two", "three", "four", "five", "six"]
calls = []
guard = LoopGuard(
    Settings(),
    on_step=lambda _session, _index, step: calls.append(step) if step.kind == "tool" else None,
)


class WithoutTools(LoopGuardSpanProcessor):
    """Passes over the spans of tools, as if nothing had instrumented them."""

    def on_end(self, span):
        step = Reader().read(EndedSpanView(span))
        if WHAT == "whole" or step is None or step.kind is not Kind.TOOL:
            super().on_end(span)


provider = TracerProvider()
provider.add_span_processor(WithoutTools(guard))


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    def model(messages, info):
        done = sum(isinstance(part, ToolReturnPart) for one in messages for part in one.parts)
        if done == len(WORDS):
            return ModelResponse(parts=[TextPart("done")])
        args = {"word": WORDS[done]}
        return ModelResponse(parts=[ToolCallPart("search", args, tool_call_id=f"call_{done}")])

    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    agent = Agent(FunctionModel(model), name="a")

    @agent.tool_plain
    def search(word: str) -> str:
        return f"nothing about {word}"

    agent.run_sync("look them up")


def langgraph():
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from openinference.instrumentation.langchain import LangChainInstrumentor

    class Model(BaseChatModel):
        @property
        def _llm_type(self):
            return "fake"

        def bind_tools(self, tools, **more):
            return self

        def _generate(self, messages, *given, **more):
            done = sum(isinstance(one, ToolMessage) for one in messages)
            answer = AIMessage("done")
            if done < len(WORDS):
                asked = {"name": "search", "args": {"word": WORDS[done]}, "id": f"call_{done}"}
                answer = AIMessage("", tool_calls=[asked])
            return ChatResult(generations=[ChatGeneration(message=answer)])

    def search(word: str) -> str:
        """Looks a word up."""
        return f"nothing about {word}"

    LangChainInstrumentor().instrument(tracer_provider=provider)
    agent = create_agent(Model(), tools=[search])
    agent.invoke({"messages": [{"role": "user", "content": "look them up"}]})


{"pydantic_ai": pydantic_ai, "langgraph": langgraph}[FRAMEWORK]()
guard.settle()
found = [(one.dialect, one.name, str(one.args), str(one.outcome)) for one in calls]
print(json.dumps({"calls": found, "faults": dict(guard.faults.counts)}))
