"""What the capability does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented | --unguarded]
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control, session
from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability
from tests.frameworks.cases import GUARDED, exporter, provider

if "--instrumented" in sys.argv:
    # No content on the spans: the guard is told it by the capability.
    settings = InstrumentationSettings(tracer_provider=provider, include_content=False)
    Agent.instrument_all(settings)

Call = tuple[str, dict[str, Any]]
SEARCH: Call = ("search", {"query": "x"})
Script = Callable[[list[ModelMessage], int], Sequence[Call]]


class Looper:
    """An agent whose model follows a script."""

    def __init__(self, script: Script, **options: Any) -> None:
        self.ran: list[str] = []
        self.script = script
        self.requests: list[list[ModelMessage]] = []
        self.agent: Agent[None, str | DeferredToolRequests] = Agent(
            FunctionModel(self.model, stream_function=self.stream),
            name="looper",
            output_type=[str, DeferredToolRequests],
            capabilities=[LoopGuardCapability(**options)],
            retries=5,
        )
        for tool in (self.search, self.fail, self.again, self.later):
            self.agent.tool_plain(tool)

    def calls(self, messages: list[ModelMessage]) -> list[ToolCallPart]:
        self.requests.append(list(messages))
        turn = len(self.requests)
        return [
            ToolCallPart(name, args, tool_call_id=f"call_{turn}_{place}")
            for place, (name, args) in enumerate(self.script(messages, turn))
        ]

    def model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(self.calls(messages) or [TextPart("Done.")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        calls = self.calls(messages)
        if not calls:
            yield "Done."
        for place, call in enumerate(calls):
            args = call.args_as_json_str()
            yield {place: DeltaToolCall(call.tool_name, args, tool_call_id=call.tool_call_id)}

    def search(self, query: str) -> str:
        """Searches."""
        self.ran.append(query)
        return "No results."

    def fail(self, query: str) -> str:
        """Fails."""
        self.ran.append(query)
        raise ValueError(query)

    def again(self, query: str) -> str:
        """Asks the model to try again, once."""
        self.ran.append(query)
        if len(self.ran) == 1:
            raise ModelRetry(query)
        return "Found."

    def later(self, query: str) -> str:
        """Is called by somebody else."""
        raise CallDeferred

    def run(self, **options: Any) -> Any:
        return self.agent.run_sync("Find it.", **options)

    def stopped(self, **options: Any) -> LoopGuardAbort:
        try:
            self.run(**options)
        except LoopGuardAbort as stop:
            return stop
        sys.exit("it was not stopped")


def always(*calls: Call) -> Script:
    """Asks for the same calls for ever, or at least for thirty turns."""
    return lambda _, turn: calls if turn <= 30 else ()


def turns(*asked: Sequence[Call]) -> Script:
    """Asks for these calls turn by turn, then answers."""
    return lambda _, turn: asked[turn - 1] if turn <= len(asked) else ()


def statuses() -> list[str]:
    ended = (span for span in exporter.get_finished_spans() if "execute_tool" in span.name)
    return [span.status.status_code.name for span in ended]


def streamed() -> object:
    """`run_stream`: the same as `run`."""
    looper = Looper(always(SEARCH))

    async def read() -> None:
        async with looper.agent.run_stream("Find it.") as result:
            async for _ in result.stream_text():
                pass

    try:
        asyncio.run(read())
    except LoopGuardAbort as stop:
        return {"ran": len(looper.ran), "parts": list(stop.parts)}
    return None


def two_runs() -> object:
    """Two runs of one agent without any id, the first of which is aborted."""
    looper = Looper(always(SEARCH))
    first = looper.stopped()
    ran = len(looper.ran)
    second = looper.stopped()
    return {"ran": [ran, len(looper.ran) - ran], "same": first.session == second.session}


def named() -> object:
    """A name in the context goes before the id of the conversation."""
    with session("run-42"):
        return Looper(always(SEARCH)).stopped(conversation_id="conversation-1").session


def conversation() -> object:
    """The session of a run is its conversation; one that was aborted goes on in the next run."""
    looper = Looper(lambda messages, _: [] if "Thanks." in str(messages[-1]) else [SEARCH])
    stop = looper.stopped(conversation_id="conversation-2")
    done = looper.agent.run_sync("Thanks.", conversation_id="conversation-2")
    return {"session": stop.session, "answer": done.output}


def contract() -> object:
    """Where the hint stands in the request, and that it stays in the history."""
    looper = Looper(turns(*[[SEARCH]] * 3))
    done = looper.run()
    told = next(one for one in looper.requests if "Do not repeat" in str(one))
    parts = [type(part).__name__ for message in told[-2:] for part in message.parts]
    return {
        "parts": parts,
        "requests": [type(message).__name__ for message in told[-2:]],
        "kept": "Do not repeat" in str(done.all_messages()),
        "answer": done.output,
    }


def after_a_deny() -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    other = [("search", {"query": "y"}), ("search", {"query": "z"})]
    looper = Looper(turns(*[[SEARCH]] * 4, other))
    done = looper.run()
    return {"ran": sorted(looper.ran), "answer": done.output}


def refused() -> object:
    """A call that was refused is on the trace as a failed one, once."""
    exporter.clear()
    looper = Looper(always(SEARCH))
    looper.stopped()
    return {"ran": len(looper.ran), "status": statuses()}


def limit() -> object:
    """A gate has the limit that it was given."""
    looper = Looper(always(SEARCH), limit_s=0.05)

    def paused(messages: list[ModelMessage], turn: int) -> Sequence[Call]:
        if turn == 2:
            control.pause("conversation-4", "a person looks at it")
        return [("search", {"query": str(turn)})]

    looper.script = paused
    try:
        looper.run(conversation_id="conversation-4")
    except LoopGuardPaused as stop:
        return {"ran": len(looper.ran), "parts": list(stop.parts)}
    return None


def a_tool_that_fails() -> object:
    """What a tool raises comes out as without the capability."""
    exporter.clear()
    looper = Looper(turns([("fail", {"query": "broken"})]))
    try:
        looper.run()
    except ValueError as error:
        return {"raised": str(error), "status": statuses()}
    return None


def a_tool_that_asks_again() -> object:
    """`ModelRetry` is passed on, and the model tries again."""
    exporter.clear()
    looper = Looper(turns([("again", {"query": "x"})], [("again", {"query": "y"})]))
    done = looper.run()
    return {"ran": looper.ran, "answer": done.output, "status": statuses()}


def a_call_that_is_deferred() -> object:
    """It is made by somebody else, and did not fail."""
    exporter.clear()
    done = Looper(turns([("later", {"query": "x"})])).run()
    calls = [call.tool_name for call in done.output.calls]
    return {"deferred": calls, "failed": "ERROR" in statuses()}


def in_one_loop() -> object:
    """Fifty runs at a time in one event loop: each is a session of its own, and all are stopped."""

    async def one() -> bool:
        looper = Looper(always(SEARCH))
        try:
            await looper.agent.run("Find it.")
        except LoopGuardAbort:
            return len(looper.ran) == 4
        return False

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(50)))

    return sum(asyncio.run(all_of_them()))


def unguarded() -> object:
    """Without a guard the agent runs as it would."""
    looper = Looper(always(SEARCH))
    answer = looper.run().output
    return {"ran": len(looper.ran), "answer": answer}


CASES = (
    streamed, two_runs, named, conversation, contract, after_a_deny, refused, limit,
    a_tool_that_fails, a_tool_that_asks_again, a_call_that_is_deferred, in_one_loop,
)  # fmt: skip
print(json.dumps({case.__name__: case() for case in (CASES if GUARDED else (unguarded,))}))
