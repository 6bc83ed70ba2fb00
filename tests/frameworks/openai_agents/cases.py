"""What the hooks do besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented]
"""

import asyncio
import gc
import itertools
import json
import sys

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    Usage,
    function_tool,
    generation_span,
    set_trace_processors,
    tool_input_guardrail,
)
from agents.mcp import MCPServer
from mcp import types
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor
from otel_loopguard.integrations.openai_agents import LoopGuardHooks

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
set_trace_processors([])
if "--instrumented" in sys.argv:
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)

turns = itertools.count()
ran = []


class Stuck(Model):
    """Asks for the same search; answers as soon as `done` says so."""

    def __init__(self, done=lambda _input: False):
        self.done = done
        self.inputs = []

    async def get_response(self, system_instructions, input, *_args, **_options):  # noqa: A002
        with generation_span(model="stuck"):
            self.inputs.append(list(input))
        said = _answer() if self.done(input) else _call()
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    async def stream_response(self, system, input, *_args, **_options):  # noqa: A002
        said = (await self.get_response(system, input)).output
        response = Response(
            id="r", created_at=0, model="stuck", object="response", output=said,
            tool_choice="auto", tools=[], parallel_tool_calls=False,
        )  # fmt: skip
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )


def _call():
    return ResponseFunctionToolCall(
        type="function_call",
        name="search",
        arguments='{"query": "x"}',
        call_id=f"call_{next(turns)}",
    )


def _answer():
    text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", content=[text], role="assistant", status="completed", type="message"
    )


@function_tool
def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return "No results."


class Server(MCPServer):
    name = "server"

    async def connect(self): ...
    async def cleanup(self): ...
    async def list_prompts(self): ...
    async def get_prompt(self, name, arguments=None): ...

    async def list_tools(self, run_context=None, agent=None):
        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        return [types.Tool(name="search", description="Searches.", inputSchema=schema)]

    async def call_tool(self, tool_name, arguments, meta=None):
        ran.append(arguments["query"])
        said = types.TextContent(type="text", text="No results.")
        return types.CallToolResult(content=[said])


def _spans(error):
    """Own spans of tool calls with that `error.type`."""
    own = "otel_loopguard.integrations.openai_agents"
    return sum(
        span.attributes.get("error.type") == error
        for span in exporter.get_finished_spans()
        if span.instrumentation_scope.name == own
    )


async def _stopped(agent, **options):
    ran.clear()
    exporter.clear()
    try:
        await Runner.run(agent, "Find it.", max_turns=30, hooks=LoopGuardHooks(), **options)
    except LoopGuardAbort as stop:
        return stop
    return None


async def mcp():
    stop = await _stopped(Agent("a", model=Stuck(), mcp_servers=[Server()]))
    return {"ran": len(ran), "parts": len(stop.parts)}


async def streamed():
    ran.clear()
    run = Runner.run_streamed(
        Agent("a", model=Stuck(), tools=[search]), "Find it.", max_turns=30, hooks=LoopGuardHooks()
    )
    try:
        async for _ in run.stream_events():
            pass
    except LoopGuardAbort as stop:
        return {"ran": len(ran), "parts": len(stop.parts)}


async def two_runs():
    agent = Agent("a", model=Stuck(), tools=[search])
    found = [(await _stopped(agent), len(ran)) for _ in range(2)]
    return {
        "ran": [made for _, made in found],
        "same": len({stop.session for stop, _ in found}) < 2,
    }


async def untraced():
    agent = Agent("a", model=Stuck(), tools=[search])
    off = RunConfig(tracing_disabled=True)
    found = [(await _stopped(agent, run_config=off), len(ran)) for _ in range(2)]
    return {
        "ran": [made for _, made in found],
        "same": len({stop.session for stop, _ in found}) < 2,
    }


async def history():
    session = SQLiteSession("c-1")
    stop = await _stopped(Agent("a", model=Stuck(), tools=[search]), session=session)
    items = await session.get_items()
    asked, told = (
        [item["call_id"] for item in items if item.get("type") == kind]
        for kind in ("function_call", "function_call_output")
    )
    return {
        "answered": asked == told,
        "last": items[-1]["output"],
        "kept": len(stop.run_data.new_items),
    }


async def hint():
    model = Stuck(lambda asked: "was called" in str(asked[-1]))
    await _stopped(Agent("a", model=model, tools=[search]))
    *_, before, last = model.inputs[-1]
    return {"role": last["role"], "before": before["type"], "requests": len(model.inputs)}


async def own_guardrail():
    @tool_input_guardrail
    def yours(data):
        return ToolGuardrailFunctionOutput.reject_content("Not here.")

    @function_tool(name_override="search", tool_input_guardrails=[yours])
    def guarded(query: str) -> str:
        """Searches."""
        raise AssertionError

    model = Stuck(lambda asked: "Not here." in str(asked[-1]))
    agent = Agent("a", model=model, tools=[guarded])
    await _stopped(agent)
    await _stopped(agent)
    return [guardrail.get_name() for guardrail in guarded.tool_input_guardrails]


async def failing():
    @function_tool(name_override="search")
    def broken(query: str) -> str:
        """Searches."""
        ran.append(query)
        raise OSError(query)

    stop = await _stopped(Agent("a", model=Stuck(), tools=[broken]))
    return {"parts": len(stop.parts), "as many": len(ran) == _spans("tool_error")}


async def raising():
    @function_tool(name_override="search", failure_error_function=None)
    def broken(query: str) -> str:
        """Searches."""
        raise OSError(query)

    hooks = LoopGuardHooks()
    try:
        await Runner.run(Agent("a", model=Stuck(), tools=[broken]), "Find it.", hooks=hooks)
    except Exception as error:  # noqa: BLE001
        kind = type(error).__name__
    gc.collect()
    return {"raised": kind, "open": len(hooks._adapter._calls)}


CASES = (
    mcp, streamed, two_runs, untraced, history, hint, own_guardrail, raising, failing,
)  # fmt: skip
print(json.dumps({case.__name__: asyncio.run(case()) for case in CASES}))
