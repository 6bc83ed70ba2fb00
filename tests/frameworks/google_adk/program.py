"""A Google ADK agent under its adapter; see tests/frameworks/scripted.py.

ADK writes spans itself, as soon as there is a tracer provider. The variant without them has the
guard on a provider that ADK does not know.
"""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from otel_loopguard.integrations.google_adk import LoopGuardPlugin
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("google_adk", "google-adk", native=True)


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        call = run.asked(llm_request.contents)
        if call is None:
            part = types.Part(text=FINAL)
        else:
            wanted = types.FunctionCall(name=call.tool, args=call.args, id=call.id)
            part = types.Part(function_call=wanted)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


agent = LlmAgent(name="looper", model=Scripted(model="scripted"), tools=[search])
plugin = LoopGuardPlugin(tracer_provider=run.provider)
runner = InMemoryRunner(agent=agent, app_name="looper", plugins=[plugin])


async def work():
    session = await runner.session_service.create_session(
        app_name="looper", user_id="ada", session_id="s-1"
    )
    asked = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    said = ""
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=asked):
        if event.is_final_response() and event.content:
            said = event.content.parts[0].text
    return said


run.main(lambda: asyncio.run(work()), stopped=lambda: plugin.stopped("s-1"))
