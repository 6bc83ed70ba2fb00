"""An OpenAI Agents SDK agent under its adapter; see tests/frameworks/scripted.py."""

import asyncio
import gc
import itertools
import json
from contextlib import nullcontext

import agents
from agents.mcp import MCPServer
from mcp import types
from openai.types import responses

from otel_loopguard.integrations.openai_agents import LoopGuardHooks
from tests.frameworks.looper import (
    FINAL,
    QUESTION,
    SEARCH,
    Looper,
    always,
    failing,
    read,
    turns,
    two_runs,
)
from tests.frameworks.scripted import Run

agents.set_trace_processors([])
run = Run(
    "openai_agents", "openai-agents", "openinference-instrumentation-openai-agents",
    instrumentor="openinference.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
)  # fmt: skip


class Model(agents.Model):
    def __init__(self, looper):
        self.looper = looper

    async def get_response(self, system_instructions, input, *_args, **_options):  # noqa: A002
        told = [
            (str(one.get("role") or one["type"]), str(one.get("content") or one.get("output")))
            for one in ([{"role": "user", "content": input}] if isinstance(input, str) else input)
        ]
        with agents.generation_span(model="scripted"):  # as the models of the SDK do
            asked = self.looper.asked(told)
        said = [
            responses.ResponseFunctionToolCall(
                type="function_call", name=one.tool, arguments=json.dumps(one.args), call_id=one.id
            )
            for one in asked
        ]
        text = responses.ResponseOutputText(text=FINAL, type="output_text", annotations=[])
        answer = responses.ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        return agents.ModelResponse(
            output=said or [answer], usage=agents.Usage(requests=1), response_id=None
        )

    async def stream_response(self, system, input, *_args, **_options):  # noqa: A002
        said = (await self.get_response(system, input)).output
        response = responses.Response(
            id="r", created_at=0, model="scripted", object="response", output=said,
            tool_choice="auto", tools=[], parallel_tool_calls=False,
        )  # fmt: skip
        yield responses.ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )


class Agent(Looper):
    def build(self, tools=None, mcp_servers=(), run_config=None, session=None, **options):
        self.hooks = LoopGuardHooks(**options)
        self.options = {"run_config": run_config, "max_turns": 200, "hooks": self.hooks}
        self.session = session
        if tools is None:
            tools = [agents.function_tool(one) for one in (self.search, self.fail)]
        self.agent = agents.Agent(
            "looper", model=Model(self), tools=tools, mcp_servers=[*mcp_servers]
        )

    def run(self):
        work = agents.Runner.run(self.agent, QUESTION, session=self.session, **self.options)
        return asyncio.run(work).final_output

    def run_limited(self):
        # The hooks are given the limit too.
        self.options |= {"hooks": LoopGuardHooks(max_turns=10), "max_turns": 10}
        return "MaxTurnsExceeded", self.run

    def below(self):
        return agents.trace("chat")

    def stream(self):
        make = agents.Runner.run_streamed
        asyncio.run(read(lambda: make(self.agent, QUESTION, **self.options).stream_events()))

    def history(self):
        self.session = agents.SQLiteSession("c-1")
        self.stopped()
        items = asyncio.run(self.session.get_items())
        kinds = ("function_call", "function_call_output")
        return [[one["call_id"] for one in items if one.get("type") == kind] for kind in kinds]


class Server(MCPServer):
    name = "server"

    def __init__(self):
        super().__init__()
        self.search = None

    async def connect(self): ...
    async def cleanup(self): ...
    async def list_prompts(self): ...
    async def get_prompt(self, name, arguments=None): ...

    async def list_tools(self, run_context=None, agent=None):
        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        return [types.Tool(name="search", description="Searches.", inputSchema=schema)]

    async def call_tool(self, tool_name, arguments, meta=None):
        said = types.TextContent(type="text", text=self.search(arguments["query"]))
        return types.CallToolResult(content=[said])


def mcp():
    """A tool of an MCP server is guarded as others are."""
    server = Server()
    looper = Agent(always(SEARCH), tools=[], mcp_servers=[server])
    server.search = looper.search
    stop = looper.stopped()
    return {"ran": len(looper.ran), "parts": len(stop.parts)}


def untraced():
    """As two runs and as calls that fail, with the SDK's tracing off."""

    def make(script):
        return Agent(script, run_config=agents.RunConfig(tracing_disabled=True))

    return two_runs(make) | failing(make)


def agent_as_tool():
    """With its own hooks and the SDK's tracing off, it is part of the run: its stop ends both."""
    off = agents.RunConfig(tracing_disabled=True)
    sub = Agent(always(SEARCH), run_config=off)
    tool = sub.agent.as_tool("sub", "Searches.", **sub.options)
    looper = Agent(always(("sub", {"input": "x"})), tools=[tool], run_config=off)
    looper.stopped()
    return [len(sub.ran), len(looper.requests)]


def agents_at_once():
    """Eight calls of an agent, with the SDK's tracing off: one after the other searches once."""

    class InTurn(Model):
        free = asyncio.Semaphore()

        async def get_response(self, system_instructions, input, *_args, **_options):  # noqa: A002
            if len(input) == 1:
                await self.free.acquire()
            else:
                self.free.release()
            return await super().get_response(system_instructions, input)

    off = agents.RunConfig(tracing_disabled=True)
    sub = Agent(lambda _, told: () if "No results." in told else [SEARCH], run_config=off)
    sub.agent.model = InTurn(sub)
    tool = sub.agent.as_tool("sub", "Searches.", **sub.options)
    calls = [("sub", {"input": str(number)}) for number in range(8)]
    looper = Agent(turns(calls), tools=[tool], run_config=off)
    looper.decided.clear()
    looper.run()
    told = [one for one in looper.decided if not one.startswith("allow")]
    return {"ran": len(sub.ran), "told": told}


def quoted_error():
    """A hint quotes what the model was told of a failure, with the SDK's tracing off, too."""
    off = agents.RunConfig(tracing_disabled=True)
    looper = Agent(always(("fail", {"query": "x"})), run_config=off)
    looper.stopped()
    told = looper.requests[-1]
    hints = [text for role, text in itertools.chain(*looper.requests) if role == "user"]
    quotes = {text.split('"')[1] for text in hints if "error: " in text}
    return bool(quotes) and quotes <= {text for _, text in told}


def the_last_output():
    """What is kept of a call that was refused says why, and the stop knows the whole run."""
    session = agents.SQLiteSession("c-2")
    looper = Agent(always(SEARCH), session=session)
    stop = looper.stopped()
    items = asyncio.run(session.get_items())
    return [items[-1]["output"][:28], len(stop.run_data.new_items) == 2 * len(looper.requests)]


def own_guardrail():
    """A guardrail of the application comes first; ours is added once, whatever runs there are."""

    @agents.tool_input_guardrail
    def yours(data):
        return agents.ToolGuardrailFunctionOutput.reject_content("Not here.")

    @agents.function_tool(name_override="search", tool_input_guardrails=[yours])
    def guarded(query: str) -> str:
        """Searches."""
        raise AssertionError

    looper = Agent(lambda _, told: () if "Not here." in told else [SEARCH], tools=[guarded])
    looper.run()
    looper.run()
    return [guardrail.get_name() for guardrail in guarded.tool_input_guardrails]


def raising():
    """A tool that ends the run leaves nothing open: the call ends with its context."""

    @agents.function_tool(name_override="search", failure_error_function=None)
    def broken(query: str) -> str:
        """Searches."""
        raise OSError(query)

    looper = Agent(always(SEARCH), tools=[broken])
    try:
        looper.run()
    except Exception as error:  # noqa: BLE001
        kind = type(error).__name__
    gc.collect()
    return {"raised": kind, "open": len(looper.hooks._adapter._calls)}


def approved():
    """A run that goes on after each approval is one session, below the span of a server too."""

    async def work(around):
        found = await agents.Runner.run(looper.agent, QUESTION, **looper.options)
        while found.interruptions:
            state = found.to_state()
            for one in found.interruptions:
                state.approve(one)
            with around():
                found = await agents.Runner.run(looper.agent, state, **looper.options)

    looper = Agent(always(SEARCH))
    looper.agent.tools[0].needs_approval = True
    places = (nullcontext, super(Agent, looper).below)
    return [looper.count(lambda one=one: asyncio.run(work(one)))["ran"] for one in places]


run.main(
    Agent, approved, mcp, untraced, agent_as_tool, agents_at_once, quoted_error, the_last_output,
    own_guardrail, raising, live=True,
)  # fmt: skip
