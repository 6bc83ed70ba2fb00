"""A LangGraph agent whose model hears the guard's hint, and obeys."""

from langchain.agents import create_agent
from langchain.agents.middleware import before_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor, control

provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
LangChainInstrumentor().instrument(tracer_provider=provider)

told = set()


@before_model
def pass_on_the_hint(state, runtime):
    control.check()
    flag = control.current()
    if flag.hint is None or flag.decision_id in told:
        return None
    told.add(flag.decision_id)
    return {"messages": [HumanMessage(flag.hint)]}


class ObedientModel(GenericFakeChatModel):
    def bind_tools(self, _tools, **_options):
        return self

    def _generate(self, messages, *_args, **_options):
        call = {"name": "search", "args": {"query": "x"}, "id": f"call_{len(messages)}"}
        heard = "Do not repeat" in messages[-1].content
        says = AIMessage("I could not find it.") if heard else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=says)])


def search(query: str) -> str:
    """Searches."""
    return "No results."


agent = create_agent(ObedientModel(messages=iter(())), [search], middleware=[pass_on_the_hint])
with otel_loopguard.session("run-1"):
    done = agent.invoke({"messages": [("user", "Find it.")]})
print(f"hints: {len(told)}, answer: {done['messages'][-1].content}")
