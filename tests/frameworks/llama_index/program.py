"""A `FunctionAgent` of LlamaIndex under its adapter; see tests/frameworks/scripted.py."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from otel_loopguard.integrations.llama_index import guarded
from tests.frameworks.scripted import FINAL, QUESTION, Run

run = Run("llama_index", "llama-index-core", "openinference-instrumentation-llama-index")
if not run.bare:
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    LlamaIndexInstrumentor().instrument(tracer_provider=run.provider)


class Scripted(FunctionCallingLLM):
    def complete(self, *_, **__):
        raise NotImplementedError

    acomplete = stream_complete = astream_complete = complete
    chat = stream_chat = astream_chat = complete

    @property
    def metadata(self):
        return LLMMetadata(is_function_calling_model=True)

    def _prepare_chat_with_tools(self, tools, user_msg=None, chat_history=None, **_):
        return {"messages": chat_history}

    async def achat(self, messages, **_):
        call = run.asked(messages)
        said = ChatMessage(role="assistant", content=FINAL if call is None else "")
        if call is not None:
            said.additional_kwargs["call"] = [call.id, call.tool, call.args]
        return ChatResponse(message=said)

    def get_tool_calls_from_response(self, response, **_):
        call = response.message.additional_kwargs.get("call")
        if call is None:
            return []
        return [ToolSelection(tool_id=call[0], tool_name=call[1], tool_kwargs=call[2])]


def search(query: str) -> str:
    """Searches the web."""
    return run.searched(query)


agent = guarded(FunctionAgent(name="looper", tools=[search], llm=Scripted(), streaming=False))


async def work():
    return str(await agent.run(QUESTION, max_iterations=70))


run.main(lambda: asyncio.run(work()))
