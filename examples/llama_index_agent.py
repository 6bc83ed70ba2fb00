"""An agent of LlamaIndex that searches for ever, see docs/frameworks.md."""

import asyncio

from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.llama_index import guarded

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckModel(MockLLM):
    async def achat(self, *_request, **_options):
        call = 'Thought: hm\nAction: search\nAction Input: {"query": "weather"}'
        return ChatResponse(message=ChatMessage(role="assistant", content=call))


def search(query: str) -> str:
    searches.append(query)
    return "No results."


async def main():
    agent = guarded(ReActAgent(tools=[search], llm=StuckModel(), streaming=False))
    await agent.run("What is the weather?")


try:
    asyncio.run(main())
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
