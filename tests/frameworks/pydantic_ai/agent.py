"""pydantic-ai under the guard; see `tests/frameworks/scripted.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pydantic_ai
from pydantic_ai import (
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    UsageLimits,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.output import PromptedOutput, TextOutput
from typing_extensions import TypedDict

from otel_loopguard import LoopGuardAbort
from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Call, Looper, Script, always, turns
from tests.frameworks.scripted import Run

run = Run("pydantic_ai", "pydantic-ai-slim")
if run.variant == "logfire":
    import logfire

    logfire.configure(
        send_to_logfire=False, console=False, additional_span_processors=[run.processor],
        inspect_arguments=False,
    )  # fmt: skip
    logfire.instrument_pydantic_ai()
elif not run.bare:
    # Cases have no content on the spans: the guard is told it by the capability.
    settings = InstrumentationSettings(
        tracer_provider=run.provider, include_content=run.scenario != "cases"
    )
    pydantic_ai.Agent.instrument_all(settings)


class Agent(Looper):
    named = ("execute_tool again",)

    def build(self, *, plain: bool = False, **options: Any) -> None:
        self.agent: pydantic_ai.Agent[None, str | DeferredToolRequests] = pydantic_ai.Agent(
            FunctionModel(self.model, stream_function=self.model_streams),
            name="looper",
            output_type=[str, DeferredToolRequests],
            capabilities=[] if plain else [LoopGuardCapability(**options)],
            retries=30,
        )
        for tool in (self.search, self.fail, self.again, self.later):
            self.agent.tool_plain(tool)

    def calls(self, messages: list[ModelMessage]) -> list[ToolCallPart]:
        told = [
            (type(part).__name__, str(getattr(part, "content", "")))
            for message in messages
            for part in message.parts
        ]
        return [ToolCallPart(one.tool, one.args, tool_call_id=one.id) for one in self.asked(told)]

    def model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(self.calls(messages) or [TextPart(FINAL)])

    async def model_streams(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[Any]:
        calls = self.calls(messages)
        if not calls:
            yield FINAL
        for place, call in enumerate(calls):
            args = call.args_as_json_str()
            yield {place: DeltaToolCall(call.tool_name, args, tool_call_id=call.tool_call_id)}

    def again(self, query: str) -> str:
        """Asks the model to try again, once."""
        self.ran.append(query)
        if len(self.ran) == 1:
            raise ModelRetry(query)
        return "Found."

    def later(self, query: str) -> str:
        """Is called by somebody else."""
        raise CallDeferred

    def run(self) -> str:
        limits = UsageLimits(request_limit=60)
        return str(self.agent.run_sync(QUESTION, usage_limits=limits).output)

    def run_limited(self) -> tuple[str, Callable[[], object]]:
        limits = UsageLimits(request_limit=10)
        return "UsageLimitExceeded", lambda: self.agent.run_sync(QUESTION, usage_limits=limits)

    def stream(self) -> object:
        async def read() -> None:
            async with self.agent.run_stream(QUESTION) as result:
                async for _ in result.stream_text():
                    pass

        return asyncio.run(read())

    def talk(self, key: str) -> object:
        return self.agent.run_sync(QUESTION, conversation_id=key)


def hint_in_history() -> object:
    """The hint stays in the messages of the run."""
    done = Agent(turns(*[[SEARCH]] * 3)).agent.run_sync(QUESTION)
    return "Do not repeat" in str(done.all_messages())


def a_tool_that_asks_again() -> object:
    """`ModelRetry` is passed on, and the model tries again."""
    looper = Agent(turns([("again", {"query": "x"})], [("again", {"query": "y"})]))
    looper.spans.clear()
    return {"answer": looper.run(), "ran": looper.ran, "failed": looper.failures()}


def a_call_that_is_deferred() -> object:
    """It is made by somebody else, and did not fail."""
    looper = Agent(turns([("later", {"query": "x"})]))
    looper.spans.clear()
    done = looper.agent.run_sync(QUESTION).output
    assert isinstance(done, DeferredToolRequests)
    statuses = {span.status.status_code.name for span in looper.spans.get_finished_spans()}
    return {"deferred": [one.tool_name for one in done.calls], "failed": "ERROR" in statuses}


def a_call_that_others_answer() -> object:
    """An answer that comes from elsewhere is that of the call: the same ones are a loop."""

    def answer(_: object, asked: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(calls={one.tool_call_id: "No results." for one in asked.calls})

    looper = Agent(always(("later", {"query": "x"})))
    handler: list[Any] = [HandleDeferredToolCalls(answer)]
    stop = looper.stopped(partial(looper.agent.run_sync, QUESTION, capabilities=handler))
    return {"parts": [*{*stop.parts}], "few": len(looper.requests) < 12}


class Found(TypedDict):
    degrees: int


def shout(text: str) -> Any:
    """Takes no output."""
    raise ModelRetry(text)


def wrong_output() -> object:
    """A model whose output is refused each time is stopped; a second try is honest.

    Refused by its type, by a validator, or by the function that takes it; in a call or as text.
    """

    def stopped(asked: Script, **options: Any) -> bool:
        looper = Agent(asked)
        if not options:
            validates: Any = looper.agent.output_validator
            validates(shout)
        stop = looper.ended(partial(looper.agent.run_sync, QUESTION, **options))
        # Each output is one call, whoever writes its span; nothing is exported without a provider.
        spans = [one for one in looper.spans.get_finished_spans() if "execute_tool" in one.name]
        few = len(looper.requests) < 20 and len(spans) in {0, len(looper.requests)}
        return stop is not None and few

    wrong: Call = ("final_result", {"degrees": "warm"})
    seen: list[object] = [
        stopped(always(wrong), output_type=Found),
        stopped(turns(), output_type=PromptedOutput(Found)),
        stopped(turns(), output_type=TextOutput(shout)),
        stopped(turns()),
    ]
    looper = Agent(turns([wrong], [("final_result", {"degrees": 21})]))
    looper.decided.clear()
    found: Any = looper.agent.run_sync(QUESTION, output_type=Found).output
    return [*seen, found["degrees"], *looper.decided]


def in_one_loop() -> object:
    """Fifty runs at a time in one event loop: each is a session of its own, and all are stopped."""

    async def one() -> bool:
        looper = Agent(always(SEARCH))
        try:
            await looper.agent.run(QUESTION)
        except LoopGuardAbort:
            return len(looper.ran) == 4
        return False

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(50)))

    return sum(asyncio.run(all_of_them()))


run.main(
    Agent, hint_in_history, a_tool_that_asks_again, a_call_that_is_deferred,
    a_call_that_others_answer, wrong_output, in_one_loop, live=True,
)  # fmt: skip
