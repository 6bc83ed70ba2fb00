"""Everyday work in a real LangGraph agent, through its middleware and through spans."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings

langchain = pytest.importorskip("langchain.agents")

CASES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "poll": ("job_status", {"id": "j-7"}, ["running"] * 19 + ["done"]),
    "poll in JSON": ("get_job", {"id": "j-7"}, ['{"state": "QUEUED"}'] * 19 + ['{"state": "OK"}']),
    "keys": ("press_key", {"key": "down"}, ["ok"] * 12),
    "scroll": ("scroll", {"direction": "down"}, ['{"status": "ok"}'] * 14),
}


def guarded() -> tuple[TracerProvider, list[str]]:
    """A provider with a guard, and what the guard decides."""
    found: list[str] = []
    guard = LoopGuard(Settings(), on_decision=lambda _, one: found.append(one.action.value))
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    return provider, found


@pytest.mark.parametrize("case", CASES)
def test_the_work_is_done_through_spans(case: str) -> None:
    """Every call is made, and nothing but a hint is said."""
    tool, args, answers = CASES[case]
    provider, found = guarded()
    tracer = provider.get_tracer("everyday")
    with tracer.start_as_current_span("invoke_agent clerk") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        for answer in answers:
            with tracer.start_as_current_span(f"execute_tool {tool}") as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", tool)
                span.set_attribute("gen_ai.tool.call.arguments", str(args).replace("'", '"'))
                span.set_attribute("gen_ai.tool.call.result", answer)
    provider.shutdown()
    assert set(found) <= {"hint"}


@pytest.mark.parametrize("case", CASES)
def test_the_work_is_done_by_an_agent(case: str) -> None:
    """The middleware refuses none of the calls, and the agent comes to its answer."""
    from langchain_core.language_models.fake_chat_models import (
        GenericFakeChatModel,
    )
    from langchain_core.messages import AIMessage
    from langchain_core.tools import StructuredTool

    from otel_loopguard.integrations.langchain import LoopGuardMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **given: Any) -> Any:
            return self

    tool, args, answers = CASES[case]
    provider, found = guarded()
    left = [*answers]

    def act(**given: str) -> str:
        """Acts."""
        return left.pop(0)

    schema = {"type": "object", "properties": {name: {"type": "string"} for name in args}}
    made = StructuredTool(name=tool, description="acts", args_schema=schema, func=act)
    calls = [
        AIMessage("", tool_calls=[{"name": tool, "args": args, "id": f"call_{number}"}])
        for number in range(len(answers))
    ]
    agent = langchain.create_agent(
        Scripted(messages=iter([*calls, AIMessage("All is done.")])),
        [made],
        middleware=[LoopGuardMiddleware(tracer_provider=provider)],
    )
    asked = {"messages": [{"role": "user", "content": "do it"}]}
    with provider.get_tracer("t").start_as_current_span("invoke_agent clerk"):
        answer = agent.invoke(asked, {"recursion_limit": 200})
    provider.shutdown()
    assert answer["messages"][-1].content == "All is done."
    assert left == []
    assert set(found) <= {"hint"}
