"""One agent for each framework of the main environment: one tool, and a scripted model.

Each function returns what runs the agent once.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable
from typing import Any

Asks = Callable[[str], "dict[str, Any] | None"]
"""Arguments of the next call, given the newest message; None: the model answers."""
DONE = "All is done."


def langchain(
    tool: str, function: Callable[..., str], asks: Asks, *, steps: int = 500, **options: Any
) -> Callable[[], object]:
    """LangChain: a graph, whose steps are the calls of the model and of tools."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool, ToolException

    from otel_loopguard.integrations.langchain import LoopGuardMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Scripted:
            return self

        def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
            args = asks(str(messages[-1].content))
            call = {"name": tool, "args": args, "id": uuid.uuid4().hex}
            message = AIMessage(DONE) if args is None else AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

    made = StructuredTool.from_function(
        _failing_by(ToolException, function), name=tool, description="Answers."
    )
    made.handle_tool_error = True
    middleware = [LoopGuardMiddleware(**options)]
    agent = create_agent(Scripted(messages=iter(())), [made], middleware=middleware, name="looper")
    return lambda: agent.invoke({"messages": [("user", "?")]}, {"recursion_limit": steps})


def pydantic_ai(
    tool: str, function: Callable[..., str], asks: Asks, *, steps: int | None = None, **options: Any
) -> Callable[[], object]:
    """pydantic-ai: its limit is that of requests."""
    from pydantic_ai import Agent, ModelRetry, Tool, UsageLimits
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability

    def model(messages: Any, info: Any) -> ModelResponse:
        args = asks(str(messages[-1]))
        return ModelResponse([TextPart(DONE) if args is None else ToolCallPart(tool, args)])

    agent = Agent(
        FunctionModel(model),
        name="looper",
        capabilities=[LoopGuardCapability(**options)],
        tools=[Tool(_failing_by(ModelRetry, function), name=tool, max_retries=5)],
    )
    return lambda: agent.run_sync("?", usage_limits=UsageLimits(request_limit=steps))


def openai_agents(
    tool: str, function: Callable[..., str], asks: Asks, *, steps: int = 500, **options: Any
) -> Callable[[], object]:
    """The OpenAI Agents SDK, which exports nothing."""
    import agents
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from otel_loopguard.integrations.openai_agents import LoopGuardHooks

    class Scripted(agents.Model):
        async def get_response(self, *_: Any, **known: Any) -> agents.ModelResponse:
            args = asks(str(known["input"][-1]))
            if args is None:
                text = ResponseOutputText(annotations=[], text=DONE, type="output_text")
                item: Any = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                item = ResponseFunctionToolCall(
                    arguments=json.dumps(args), call_id=uuid.uuid4().hex, name=tool,
                    type="function_call",
                )  # fmt: skip
            usage = agents.Usage(requests=1)
            return agents.ModelResponse(output=[item], usage=usage, response_id=None)

        def stream_response(self, *_args: Any, **_options: Any) -> Any:
            raise NotImplementedError

    agents.set_trace_processors([])
    # The SDK's own text for a failure leaves out what the failure was.
    made = agents.function_tool(
        function, name_override=tool, failure_error_function=lambda _, error: str(error)
    )
    agent = agents.Agent(name="looper", model=Scripted(), tools=[made])
    return lambda: agents.Runner.run_sync(
        agent, "?", hooks=LoopGuardHooks(**options), max_turns=steps
    )


AGENTS: dict[str, Callable[..., Callable[[], object]]] = {
    "langchain": langchain, "pydantic_ai": pydantic_ai, "openai_agents": openai_agents,
}  # fmt: skip


def _failing_by(kind: type[Exception], function: Callable[..., str]) -> Callable[..., str]:
    """The function, whose failures are those that a framework tells its model."""

    @functools.wraps(function)
    def call(**args: Any) -> str:
        try:
            return function(**args)
        except RuntimeError as error:
            raise kind(str(error)) from None

    return call
