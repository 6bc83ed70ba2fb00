"""A LangGraph agent that searches for ever, noticed from its spans and stopped.

pip install otel-loopguard langchain openinference-instrumentation-langchain
python examples/langgraph_agent.py
"""

import sys
from itertools import count

from langchain.agents import create_agent
from langchain.agents.middleware import before_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import Action, LoopGuardAbort, LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())  # the one line
LangChainInstrumentor().instrument(tracer_provider=provider)

searches: list[str] = []


class StuckModel(GenericFakeChatModel):
    """Asks for the same search at every turn, as a stuck model does."""

    def bind_tools(self, _tools, **_options):
        return self


def search(query: str) -> str:
    """Searches the web."""
    searches.append(query)
    return "No results."


@before_model
def ask_the_guard(_state, _runtime):
    """Runs before every turn of the model: the place to stop."""
    flag = control.current()
    if flag.action is not Action.ALLOW:
        print(f"{flag.action} after {len(searches)} searches: {flag.reason}")
    control.check()


call = {"name": "search", "args": {"query": "weather in Paris"}}
turns = (AIMessage("", tool_calls=[{**call, "id": f"call_{turn}"}]) for turn in count())
agent = create_agent(StuckModel(messages=turns), [search], middleware=[ask_the_guard])

try:
    with otel_loopguard.session("run-1"):
        agent.invoke({"messages": [("user", "What is the weather?")]}, {"recursion_limit": 200})
except LoopGuardAbort as stop:
    print(f"stopped: {stop} ({len(searches)} searches)")
    sys.exit(0)
sys.exit("The agent was not stopped.")
