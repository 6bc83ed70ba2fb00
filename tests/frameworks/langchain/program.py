"""LangChain 1.x under the guard; see `tests/frameworks/scripted.py`."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from otel_loopguard.integrations.langchain import LoopGuardMiddleware
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("langchain", "langchain", "langgraph", "openinference-instrumentation-langchain")
if not run.bare:
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=run.provider)


class Scripted(GenericFakeChatModel):
    """Says what the script says."""

    def bind_tools(self, tools: Any, **options: Any) -> Scripted:
        return self

    def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
        call = run.asked([message.content for message in messages])
        calls = [] if call is None else [{"name": call.tool, "args": call.args, "id": call.id}]
        said = AIMessage("" if calls else FINAL, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


agent = create_agent(
    Scripted(messages=iter(())), [search], middleware=[LoopGuardMiddleware()], name="looper"
)


def work() -> str:
    done = agent.invoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 200})
    return str(done["messages"][-1].content)


run.main(work)
