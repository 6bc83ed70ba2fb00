"""A LangGraph agent that searches for ever, see docs/frameworks.md."""

from itertools import count

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.langchain import LoopGuardMiddleware

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckModel(GenericFakeChatModel):
    def bind_tools(self, _tools, **_options):
        return self


def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


call = {"name": "search", "args": {"query": "weather"}}
model = StuckModel(messages=(AIMessage("", tool_calls=[{**call, "id": str(n)}]) for n in count()))
agent = create_agent(model, [search], middleware=[LoopGuardMiddleware()])
try:
    agent.invoke({"messages": [("user", "What is the weather?")]})
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
