"""Everyday work in a real framework, with a scripted model: one JSON object, a case by name.

python everyday_run.py langchain|openai_agents|pydantic_ai
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

NAME = sys.argv[1]
PAUSE_S = 600


class Case(NamedTuple):
    """What a tool answers, call by call; None for a failure with 503."""

    tool: str
    asked: Sequence[str]
    answers: Sequence[str | None]
    rest_s: float = 0


ITEMS = [f"SKU-{1000 + number}" for number in range(50)]
CASES = {
    "poll": Case("job_status", ["j-7"] * 20, ["running"] * 19 + ["done"]),
    "declared poll": Case("look", ["j-7"] * 20, ["the report has 12 pages so far"] * 19 + ["done"]),
    "schedule": Case("get_health", ["shop"] * 20, ["all systems normal"] * 20, PAUSE_S),
    "outage": Case(
        "fetch_item", [item for item in ITEMS[:8] for _ in range(3)],
        [answer for item in ITEMS[:8] for answer in (None, None, f"the text about {item}")],
    ),
    "keys": Case("press_key", ["down"] * 12, ["ok"] * 12),
    "lookups": Case("find_article", ITEMS, ["Not found"] * 50),
    "long run": Case("read_page", ITEMS, [f"page about {item} and {item[::-1]}" for item in ITEMS]),
}  # fmt: skip

decisions: list[Decision] = []
guard = LoopGuard(
    Settings(poll_tools=frozenset({"look"})), on_decision=lambda _, one: decisions.append(one)
)
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
rehearsal = otel_loopguard.set_testing(True)
left: list[tuple[str, str | None]] = []
rest: list[float] = [0]


def answer(of: str) -> str:
    """Answers what the case says next."""
    _, said = left.pop(0)
    if said is None:
        msg = "503 Service Unavailable"
        raise RuntimeError(msg)
    return said


def following() -> str | None:
    """What the model asks for next; None when it is done."""
    if rest[0]:
        rehearsal.advance(rest[0])
    return left[0][0] if left else None


def langchain(tool: str) -> Callable[[], object]:
    """An agent of LangChain with its middleware."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    from otel_loopguard.integrations.langchain import LoopGuardMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Scripted:
            return self

        def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
            of = following()
            call = {"name": tool, "args": {"of": of}, "id": uuid.uuid4().hex}
            said = AIMessage("", tool_calls=[call]) if of else AIMessage("All is done.")
            return ChatResult(generations=[ChatGeneration(message=said)])

    made = StructuredTool.from_function(safely, name=tool, description="Answers.")
    made.handle_tool_error = True
    agent = create_agent(
        Scripted(messages=iter(())), [made], middleware=[LoopGuardMiddleware()], name="clerk"
    )
    return lambda: agent.invoke({"messages": [("user", "?")]}, {"recursion_limit": 500})


def safely(of: str) -> str:
    """Answers, or fails in the way that LangChain tells its model."""
    from langchain_core.tools import ToolException

    try:
        return answer(of)
    except RuntimeError as error:
        raise ToolException(str(error)) from None


def pydantic_ai(tool: str) -> Callable[[], object]:
    """An agent of pydantic-ai with its capability."""
    from pydantic_ai import Agent, ModelRetry, Tool, UsageLimits
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability

    def retried(of: str) -> str:
        try:
            return answer(of)
        except RuntimeError as error:
            raise ModelRetry(str(error)) from None

    def model(messages: Any, info: Any) -> ModelResponse:
        of = following()
        part = ToolCallPart(tool, {"of": of}) if of else TextPart("All is done.")
        return ModelResponse([part])

    agent = Agent(
        FunctionModel(model), name="clerk", capabilities=[LoopGuardCapability()],
        tools=[Tool(retried, name=tool, max_retries=5)],
    )  # fmt: skip
    return lambda: agent.run_sync("?", usage_limits=UsageLimits(request_limit=None))


def openai_agents(tool: str) -> Callable[[], object]:
    """An agent of the OpenAI Agents SDK with its hooks."""
    from agents import (
        Agent,
        Model,
        ModelResponse,
        Runner,
        Usage,
        function_tool,
        set_trace_processors,
    )
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from otel_loopguard.integrations.openai_agents import LoopGuardHooks

    set_trace_processors([])

    class Scripted(Model):
        async def get_response(self, *_args: Any, **_options: Any) -> ModelResponse:
            of = following()
            said: Any = ResponseFunctionToolCall(
                arguments=json.dumps({"of": of}), call_id=uuid.uuid4().hex, name=tool,
                type="function_call",
            )  # fmt: skip
            if not of:
                text = ResponseOutputText(annotations=[], text="All is done.", type="output_text")
                said = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_options: Any) -> Any:
            raise NotImplementedError

    # The SDK's own text for a failure leaves out what the failure was.
    made = function_tool(
        answer, name_override=tool, failure_error_function=lambda _, error: str(error)
    )
    agent = Agent(name="clerk", model=Scripted(), tools=[made])
    return lambda: Runner.run_sync(agent, "?", hooks=LoopGuardHooks(), max_turns=500)


FRAMEWORKS = {"langchain": langchain, "openai_agents": openai_agents, "pydantic_ai": pydantic_ai}
said: dict[str, object] = {}
for name, case in CASES.items():
    decisions.clear()
    left[:], rest[0] = list(zip(case.asked, case.answers, strict=True)), case.rest_s
    fault = ""
    try:
        FRAMEWORKS[NAME](case.tool)()
    except Exception as error:  # noqa: BLE001
        fault = repr(error)[:300]
    said[name] = {
        "left": len(left),
        "fault": fault,
        "told": [f"{one.action.value} {one.reason}" for one in decisions],
    }
print(json.dumps(said))
