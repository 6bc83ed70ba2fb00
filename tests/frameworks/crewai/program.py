"""A crew of CrewAI under its adapter; see tests/frameworks/scripted.py."""

import json
import os
import tempfile

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_TESTING": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

from otel_loopguard.integrations.crewai import LoopGuardHooks
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("crewai", "crewai", "openinference-instrumentation-crewai")
if not run.bare:
    from openinference.instrumentation.crewai import CrewAIInstrumentor

    CrewAIInstrumentor().instrument(tracer_provider=run.provider)


class Scripted(BaseLLM):
    def supports_function_calling(self):
        return True

    def call(self, messages, **_):
        call = run.asked(messages)
        if call is None:
            return FINAL
        asked = {"name": call.tool, "arguments": json.dumps(call.args)}
        return [{"id": call.id, "type": "function", "function": asked}]


@tool("search")
def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


# CrewAI would give the result of the first call again.
search.cache_function = lambda *_: False
agent = Agent(
    role="looper", goal="Find it.", backstory="-", llm=Scripted(model="scripted"), tools=[search],
    max_iter=70,
)  # fmt: skip
task = Task(description=QUESTION, expected_output="The weather.", agent=agent)
LoopGuardHooks().register()
run.main(lambda: Crew(agents=[agent], tasks=[task], cache=False).kickoff().raw)
