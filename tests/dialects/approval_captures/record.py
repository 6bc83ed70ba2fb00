"""Records an agent whose calls wait for a person, who looks at all of them after twenty minutes.

The captures beside this file were written by it, each in an environment of its own with Python
3.11:

    pip install -e ".[server]" google-adk==2.13.0
    python -m tests.dialects.approval_captures.record google_adk

    pip install -e ".[server]" langchain==1.5.2 langgraph==1.2.24 \
        opentelemetry-instrumentation-genai-langchain==1.3b0
    python -m tests.dialects.approval_captures.record langgraph

The model asks for eight mails at once, and answers when they are sent. The twenty minutes are put
into the times afterwards.
"""

# pyright: basic, reportMissingImports=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from tests.dialects.loop_captures.record import exporting, save, written

PEOPLE = "ann bob cid dan eve fay gus hal".split()
WAITED = 20 * 60 * 1_000_000_000


def send(to: str) -> str:
    """Sends a mail."""
    return f"The mail to {to} was sent."


def google_adk(answers):
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.adk.tools import FunctionTool
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request, stream=False):
            asked = not any(one.role == "model" for one in llm_request.contents)
            calls = [types.FunctionCall(name="send", args={"to": one}) for one in PEOPLE]
            parts = [types.Part(function_call=one) for one in calls]
            said = types.Content(role="model", parts=parts if asked else [types.Part(text="Done.")])
            yield LlmResponse(content=said)

    tool = FunctionTool(send, require_confirmation=True)
    runner = InMemoryRunner(LlmAgent(name="mailer", model=Scripted(model="m"), tools=[tool]))

    async def turn(session, *parts):
        said = types.Content(role="user", parts=[*parts])
        asked = runner.run_async(user_id="u", session_id=session.id, new_message=said)
        calls = [call async for event in asked for call in event.get_function_calls()]
        return [call for call in calls if call.name == "adk_request_confirmation"]

    async def work():
        session = await runner.session_service.create_session(
            app_name=runner.app_name, user_id="u", session_id="talk-1"
        )
        asked = await turn(session, types.Part(text="Write to all of them."))
        answers()
        yes = {"confirmed": True}
        said = [types.FunctionResponse(id=one.id, name=one.name, response=yes) for one in asked]
        await turn(session, *(types.Part(function_response=one) for one in said))

    asyncio.run(work())


def langgraph(answers):
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command, interrupt
    from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor

    def ask(to: str) -> str:
        """Sends a mail."""
        return send(to) if interrupt(f"May I write to {to}?") else "No."

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools, **options):
            return self

    LangChainInstrumentor().instrument()
    ask.__name__ = "send"
    calls = [{"name": "send", "args": {"to": one}, "id": f"call_{one}"} for one in PEOPLE]
    model = Scripted(messages=iter([AIMessage("", tool_calls=calls), AIMessage("Done.")]))
    agent = create_agent(model, [ask], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "talk-1"}}
    found = agent.invoke({"messages": [("user", "Write to all of them.")]}, thread)
    answers()
    agent.invoke(Command(resume={one.id: True for one in found["__interrupt__"]}), thread)


def main(framework):
    # Read when the framework is imported.
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    memory = exporting()
    asked = []
    globals()[framework](lambda: asked.append(time.time_ns()))
    spans = [written(one) for one in memory.get_finished_spans()]
    for span in spans:
        for key in ("start", "end"):
            span[key] += WAITED * (span[key] > asked[0])
    save(Path(__file__).parent / f"{framework}.json", spans)


if __name__ == "__main__":
    main(*sys.argv[1:])
