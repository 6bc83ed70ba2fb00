"""An agent of smolagents that searches for ever, see docs/frameworks.md."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from smolagents import ChatMessage, CodeAgent, Model, tool

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.smolagents import guarded

searches: list[str] = []
guard = LoopGuard(on_decision=lambda _session, said: print(
    f"{said.action} after {len(searches)} searches: {said.message}"))  # fmt: skip
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)


class StuckModel(Model):
    def generate(self, *_request, **_options):
        code = "Again.\n<code>\nprint(search('weather in Paris'))\n</code>"
        return ChatMessage(role="assistant", content=code)


@tool
def search(query: str) -> str:
    """Searches the web.

    Args:
        query: What is searched.
    """
    searches.append(query)
    return "No results."


agent = guarded(CodeAgent(tools=[search], model=StuckModel(), verbosity_level=0))
try:
    agent.run("What is the weather?")
except LoopGuardAbort as stop:
    print(f"stopped: {stop}, with {stop.parts} ({len(searches)} searches)")
