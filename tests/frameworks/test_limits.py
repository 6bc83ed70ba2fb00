"""A framework's own limit: the model hears of it before it strikes, and no result is lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuardSpanProcessor, resilience, session

PAGES = "one two three four five six seven eight nine ten".split()
Run = Callable[[TracerProvider, list[str]], None]


def langgraph(provider: TracerProvider, heard: list[str]) -> None:
    """A graph of 20 steps: a model call and a tool call are two."""
    agents = pytest.importorskip("langchain.agents")
    models = pytest.importorskip("langchain_core.language_models.fake_chat_models")
    messages: Any = pytest.importorskip("langchain_core.messages")
    outputs: Any = pytest.importorskip("langchain_core.outputs")
    errors: Any = pytest.importorskip("langgraph.errors")
    from otel_loopguard.integrations.langchain import LoopGuardMiddleware

    class Scripted(models.GenericFakeChatModel):  # type: ignore[misc, name-defined]
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, asked: Any, *_: Any, **__: Any) -> Any:
            heard.append(str(asked[-1].content))
            calls = [{"name": "search", "args": {"query": PAGES[len(heard) - 1]}, "id": "c"}]
            said = messages.AIMessage("", tool_calls=calls)
            return outputs.ChatResult(generations=[outputs.ChatGeneration(message=said)])

    guarded = LoopGuardMiddleware(tracer_provider=provider)
    agent = agents.create_agent(Scripted(messages=iter(())), [search], middleware=[guarded])
    with pytest.raises(errors.GraphRecursionError):
        agent.invoke({"messages": [("user", "Read it all.")]}, {"recursion_limit": 20})


def pydantic_ai(provider: TracerProvider, heard: list[str]) -> None:
    """`request_limit` 10."""
    ai: Any = pytest.importorskip("pydantic_ai")
    said: Any = pytest.importorskip("pydantic_ai.messages")
    function: Any = pytest.importorskip("pydantic_ai.models.function")
    from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability

    def scripted(asked: Any, _info: Any) -> Any:
        heard.append(str(asked[-1]))
        call = said.ToolCallPart("search", {"query": PAGES[len(heard) - 1]})
        return said.ModelResponse([call])

    capability = LoopGuardCapability(tracer_provider=provider)
    agent = ai.Agent(function.FunctionModel(scripted), capabilities=[capability])
    agent.tool_plain(search)
    with pytest.raises(ai.UsageLimitExceeded):
        agent.run_sync("Read it all.", usage_limits=ai.UsageLimits(request_limit=10))


def openai_agents(provider: TracerProvider, heard: list[str]) -> None:
    """`max_turns` 10, which the hooks are given too."""
    sdk: Any = pytest.importorskip("agents")
    responses: Any = pytest.importorskip("openai.types.responses")
    from otel_loopguard.integrations.openai_agents import LoopGuardHooks

    class Scripted(sdk.Model):  # type: ignore[misc, name-defined]
        async def get_response(self, *_: Any, **known: Any) -> Any:
            heard.append(str(known["input"][-1]))
            call = responses.ResponseFunctionToolCall(
                type="function_call",
                name="search",
                arguments=json.dumps({"query": PAGES[len(heard) - 1]}),
                call_id=f"c{len(heard)}",
            )
            usage = sdk.Usage(requests=1)
            return sdk.ModelResponse(output=[call], usage=usage, response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    sdk.set_trace_processors([])
    agent = sdk.Agent("reader", model=Scripted(), tools=[sdk.function_tool(search)])
    hooks = LoopGuardHooks(max_turns=10, tracer_provider=provider)
    with pytest.raises(sdk.MaxTurnsExceeded):
        sdk.Runner.run_sync(agent, "Read it all.", max_turns=10, hooks=hooks)


def search(query: str) -> str:
    """Reads a page."""
    return f"The page {query} says {query * 9}."


@pytest.mark.parametrize("run", [langgraph, pydantic_ai, openai_agents])
def test_the_model_hears_of_a_limit_and_no_result_is_lost(run: Run) -> None:
    """At four fifths, once; when the limit strikes `resilience.parts` has what the tools gave."""
    provider, heard, key = TracerProvider(), list[str](), f"limits-{uuid.uuid4().hex}"
    provider.add_span_processor(LoopGuardSpanProcessor())
    with session(key):
        run(provider, heard)
    warned = [number for number, text in enumerate(heard, 1) if "which ends the run" in text]
    assert len(warned) == 1
    assert 8 <= warned[0] <= 9
    assert len(resilience.parts(key)) >= 9
    assert "The page one says" in str(resilience.parts(key)[0])


def test_of_a_session_that_is_not_known_there_are_no_parts() -> None:
    """Nothing is raised."""
    assert resilience.parts("nobody") == ()
    assert resilience.parts() == ()
