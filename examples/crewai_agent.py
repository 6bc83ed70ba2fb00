"""A crew of CrewAI whose agent searches for ever, see docs/frameworks.md."""

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.crewai import LoopGuardHooks

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
LoopGuardHooks().register()


class StuckModel(BaseLLM):
    def supports_function_calling(self):
        return True

    def call(self, messages, **_request):
        call = {"name": "search", "arguments": '{"query": "weather"}'}
        return [{"id": f"call_{len(messages)}", "type": "function", "function": call}]


@tool
def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


agent = Agent(role="-", goal="-", backstory="-", llm=StuckModel(model="stuck"), tools=[search])
try:
    Crew(tasks=[Task(description="-", expected_output="-", agent=agent)], cache=False).kickoff()
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
