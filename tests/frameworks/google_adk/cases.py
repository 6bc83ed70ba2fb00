"""What the plugin does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented]
"""

import asyncio
import json
import sys
import warnings

from google.adk.agents import LlmAgent, LoopAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard.integrations.google_adk import LoopGuardPlugin

warnings.simplefilter("ignore")
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
provider.add_span_processor(SimpleSpanProcessor(exporter))
if "--instrumented" in sys.argv:
    trace.set_tracer_provider(provider)

ran = []
requests = []


class Stuck(BaseLlm):
    """Asks for the same search; answers as soon as `word` is in the newest content."""

    word: str = "\0"

    async def generate_content_async(self, llm_request, stream=False):
        requests.append(list(llm_request.contents))
        part = types.Part(function_call=types.FunctionCall(name="search", args={"query": "x"}))
        if self.word in str(llm_request.contents[-1]):
            part = types.Part(text="Done.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return "No results."


class Talk:
    """Runs of an agent in one session of ADK."""

    def __init__(self, key, agent=None, tool=search):
        self.key = key
        self.plugin = LoopGuardPlugin(tracer_provider=provider)
        agent = agent or LlmAgent(name="looper", model=Stuck(model="stuck"), tools=[tool])
        self.runner = InMemoryRunner(agent=agent, app_name="app", plugins=[self.plugin])

    async def turn(self):
        """One run; its calls, its last answer's error code and what stopped it."""
        ran.clear()
        exporter.clear()
        events = await self.runner.run_debug("Find it.", session_id=self.key, quiet=True)
        codes = [event.error_code for event in events if event.error_code]
        return len(ran), codes, self.plugin.stopped(self.key)

    async def history(self):
        """The ids of calls, and of answers to them, that the session keeps."""
        service = self.runner.session_service
        kept = await service.get_session(
            app_name="app", user_id="debug_user_id", session_id=self.key
        )
        calls = [call.id for event in kept.events for call in event.get_function_calls()]
        told = [said.id for event in kept.events for said in event.get_function_responses()]
        return calls, told


async def stopped():
    talk = Talk("stopped")
    made, codes, stop = await talk.turn()
    calls, told = await talk.history()
    return {
        "ran": made,
        "codes": codes[:1],
        "parts": len(stop.parts),
        "session": stop.session,
        "answered": calls == told,
    }


async def next_turn():
    talk = Talk("next")
    return [(await talk.turn())[0] > 0 for _ in range(3)]


async def next_request():
    """As `next_turn`, each below the span of a web server."""
    talk = Talk("request")
    made = []
    for _ in range(2):
        with trace.get_tracer("web").start_as_current_span("POST /chat"):
            made.append((await talk.turn())[0] > 0)
    return made


async def workflow():
    inner = LlmAgent(name="looper", model=Stuck(model="stuck"), tools=[search])
    made, _, stop = await Talk("workflow", LoopAgent(name="again", sub_agents=[inner])).turn()
    return {"ran": made, "stopped": stop is not None}


async def hint():
    requests.clear()
    model = Stuck(model="stuck", word="was called")
    talk = Talk("hint", LlmAgent(name="looper", model=model, tools=[search]))
    _, codes, stop = await talk.turn()
    *_, before, last = requests[-1]
    return {
        "role": last.role,
        "before": before.parts[0].function_response is not None,
        "codes": codes,
        "stopped": stop is not None,
    }


async def told_failures():
    def search(query: str) -> dict:
        """Searches."""
        ran.append(query)
        return {"error": "no such index"}

    made, _, stop = await Talk("failures", tool=search).turn()
    return {"fewer than 10": made < 10, "stopped": stop is not None, "parts": len(stop.parts)}


async def raising():
    def search(query: str) -> str:
        """Searches."""
        raise OSError(query)

    talk = Talk("raising", tool=search)
    try:
        await talk.turn()
    except OSError as error:
        raised = str(error)
    kinds = [span.attributes.get("error.type") for span in exporter.get_finished_spans()]
    return {
        "raised": raised,
        "on the span": "OSError" in kinds,
        "open": len(talk.plugin._adapter._calls),
    }


CASES = (
    stopped, next_turn, next_request, workflow, hint, raising, told_failures,
)  # fmt: skip
print(json.dumps({case.__name__: asyncio.run(case()) for case in CASES}))
