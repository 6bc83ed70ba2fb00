"""An agent of pydantic-ai or LangGraph that makes six calls, seen in several ways.

Run with two arguments: `pydantic_ai` or `langgraph`, and how: `whole` or `models` (without the
spans of tools), or beside the processors of others `logfire`, `openinference-first` or
`openinference-last`. Prints one JSON object: dialect, name, arguments and outcome of each call
that the guard counted, its decisions and its faults.
"""

import json
import sys

from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings

FRAMEWORK, HOW = sys.argv[1:]
NAMES = ["alice", "bob", "carol", "dave", "erin", "frank"]
calls, decisions = [], []
guard = LoopGuard(
    Settings(),
    on_step=lambda _session, _index, step: calls.append(step) if step.kind == "tool" else None,
    on_decision=lambda _session, decision: decisions.append(decision.action.value),
)


class WithoutTools(LoopGuardSpanProcessor):
    """Passes over the spans of tools, as if nothing had instrumented them."""

    def on_end(self, span):
        kinds = {"gen_ai.operation.name": "execute_tool", "openinference.span.kind": "TOOL"}
        if kinds.items().isdisjoint((span.attributes or {}).items()):
            super().on_end(span)


processor = WithoutTools(guard) if HOW == "models" else LoopGuardSpanProcessor(guard)
provider = TracerProvider()


def reset(what: str) -> str:
    """Resets a session."""
    return f"the session cookie was reset: {what}"


def asked(number):
    return {"what": f"reset session for {NAMES[number]}"}


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    def model(messages, info):
        done = sum(isinstance(part, ToolReturnPart) for one in messages for part in one.parts)
        if done == len(NAMES):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("reset", asked(done), f"call_{done}")])

    if HOW == "logfire":
        import logfire

        logfire.configure(
            send_to_logfire=False, console=False, additional_span_processors=[processor],
            inspect_arguments=False,
        )  # fmt: skip
        logfire.instrument_pydantic_ai()
    else:
        processors = [processor]
        if HOW.startswith("openinference"):
            from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

            processors.insert(HOW.endswith("last"), OpenInferenceSpanProcessor())
        for one in processors:
            provider.add_span_processor(one)
        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    Agent(FunctionModel(model), name="support", tools=[reset]).run_sync("reset them all")


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
            if done < len(NAMES):
                call = {"name": "reset", "args": asked(done), "id": f"call_{done}"}
                answer = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=answer)])

    provider.add_span_processor(processor)
    LangChainInstrumentor().instrument(tracer_provider=provider)
    agent = create_agent(Model(), tools=[reset])
    agent.invoke({"messages": [{"role": "user", "content": "reset them all"}]})


{"pydantic_ai": pydantic_ai, "langgraph": langgraph}[FRAMEWORK]()
guard.settle()
found = [(one.dialect, one.name, str(one.args), str(one.outcome)) for one in calls]
print(json.dumps({"calls": found, "decisions": decisions, "faults": dict(guard.faults.counts)}))
