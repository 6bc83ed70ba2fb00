"""AutoGen: an assistant agent, and a team of such agents.

::

    agent = LoopGuardAssistantAgent("looper", model_client, tools=[search])
    team = LoopGuardTeam(RoundRobinGroupChat([agent, critic]))
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from opentelemetry import context as otel_context
from pydantic import ValidationError

from otel_loopguard._control.context import named_session, naming
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.integrations._adapter import Adapter, Answer, Options, ToolCall, require
from otel_loopguard.integrations._runs import captured, capturing

_agents: Any = require("autogen_agentchat.agents", "autogen")
_messages: Any = require("autogen_agentchat.messages", "autogen")
_models: Any = require("autogen_core.models", "autogen")
_tools: Any = require("autogen_core.tools", "autogen")
_RUN = otel_context.create_key("loopguard-autogen-run")


class _Run:
    """One run, of an agent or of a team: the context of all that it does, and what stopped it."""

    def __init__(self) -> None:
        self.stop: LoopGuardStop | None = None
        named = None if named_session() else naming(f"run-{uuid.uuid4().hex}")
        self._context = otel_context.set_value(_RUN, self, named)

    @classmethod
    def current(cls) -> _Run | None:
        """The run of the current context."""
        return cast("_Run | None", otel_context.get_value(_RUN))

    async def awaited(self, made: Callable[[], Awaitable[Any]]) -> Any:
        """Awaits inside of the run."""
        token = otel_context.attach(self._context)
        try:
            return await made()
        finally:
            # What is open inside of the run goes on with the next step.
            self._context = otel_context.get_current()
            otel_context.detach(token)

    async def driven(self, steps: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Yields a generator's items, each made within the run."""
        done = object()
        try:
            while (item := await self.awaited(lambda: anext(steps, done))) is not done:
                yield item
        finally:
            await self.awaited(steps.aclose)

    @contextmanager
    def raising(self) -> Generator[None, None, None]:
        """Raises what stopped the run in place of what AutoGen makes of it."""
        try:
            yield
        except RuntimeError as error:
            if self.stop is None:
                raise
            raise self.stop from error


class LoopGuardAssistantAgent(_agents.AssistantAgent):
    """An `AssistantAgent` that does at each model call and tool call what the guard decided.

    * Before a model call: waits while the session is paused; the hint is a user message at the end
      of that one request, and not in the context that the agent keeps.
    * Before a tool call: waits likewise; a refused call has what the model is told as its result,
      an error.
    * An abort is a `LoopGuardAbort` out of `run` and `run_stream`, with the results so far, behind
      the results of the calls. In a team see `LoopGuardTeam`.

    The session is the one that `otel_loopguard.session` names, else one for each run. Of the tools
    that it is given the method `run` is wrapped, so that the guard is told what AutoGen's spans do
    not say.

    Args:
        name: As of `AssistantAgent`.
        model_client: Likewise.
        loopguard: Options, as of `Adapter`.
        **options: All that `AssistantAgent` takes besides.
    """

    def __init__(
        self, name: str, model_client: Any, *, loopguard: Options | None = None, **options: Any
    ) -> None:
        adapter = Adapter("autogen", **(loopguard or {}))
        base: Any = super()
        base.__init__(name, _Client(model_client, adapter, name), **options)
        self._adapter = adapter
        self._workbench: list[Any] = [
            (_Streaming if isinstance(inner, _tools.StaticStreamWorkbench) else _Workbench)(
                inner, adapter, name
            )
            for inner in self._workbench
        ]

    async def run(self, **options: Any) -> Any:
        """As of `AssistantAgent`; raises `LoopGuardAbort`."""
        base: Any = super()
        made = functools.partial(base.run, **options)
        # Inside of another run the context is that of the other.
        return await (made() if _Run.current() else _Run().awaited(made))

    async def run_stream(self, **options: Any) -> AsyncGenerator[Any, None]:
        """As of `AssistantAgent`; raises `LoopGuardAbort`."""
        base: Any = super()
        steps = base.run_stream(**options)
        async for item in steps if _Run.current() else _Run().driven(steps):
            yield item

    async def on_messages_stream(
        self, messages: Any, cancellation_token: Any
    ) -> AsyncGenerator[Any, None]:
        """As of `AssistantAgent`; raises `LoopGuardAbort`."""
        base: Any = super()
        running = _Run.current() or _Run()
        try:
            async for item in base.on_messages_stream(messages, cancellation_token):
                yield item
                if isinstance(item, _messages.ToolCallExecutionEvent):
                    # What stopped a call, or an agent that is a tool of this one.
                    stop = running.stop
                    for workbench in self._workbench:
                        stop, workbench.stop = workbench.stop or stop, None
                    if stop is not None:
                        raise stop
                handed: Any = getattr(item, "chat_message", None)
                if isinstance(handed, _messages.HandoffMessage):
                    self._adapter.handed_off(handed.target, self.name, handed.content)
        except LoopGuardStop as stop:
            running.stop = stop
            raise


class LoopGuardTeam:
    """A team whose runs are one session each, and raise what stops them.

    AutoGen makes any exception of an agent a `RuntimeError` of the team, and spreads a run over
    many traces.

    Args:
        team: A team of `LoopGuardAssistantAgent`. Without `runtime`, or with one that is started
            where `otel_loopguard.session` names the session. Whatever else it can do is done by it.
    """

    def __init__(self, team: Any) -> None:
        self._team = team

    def __getattr__(self, name: str) -> Any:
        return getattr(self._team, name)

    async def run(self, **options: Any) -> Any:
        """As of the team; raises `LoopGuardAbort`."""
        running = _Run()
        with running.raising():
            return await running.awaited(functools.partial(self._team.run, **options))

    async def run_stream(self, **options: Any) -> AsyncGenerator[Any, None]:
        """As of the team; raises `LoopGuardAbort`."""
        running = _Run()
        with running.raising():
            async for item in running.driven(self._team.run_stream(**options)):
                yield item


class _Around:
    """Wraps a part of an agent, and delegates to it what it does not override."""

    def __init__(self, inner: Any, adapter: Adapter, agent: str) -> None:
        self._inner = inner
        self._adapter = adapter
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Client(_Around):
    """A model client that asks the guard before each request."""

    async def create(self, messages: Any, **options: Any) -> Any:
        result = await self._inner.create(await self._with_hint(messages), **options)
        self._answered(result, options)
        return result

    async def create_stream(self, messages: Any, **options: Any) -> AsyncGenerator[Any, None]:
        async for chunk in self._inner.create_stream(await self._with_hint(messages), **options):
            yield chunk
            if isinstance(chunk, _models.CreateResult):
                self._answered(chunk, options)

    def _answered(self, result: Any, options: dict[str, Any]) -> None:
        """Reports the answer to the guard, if no span does, and calls that AutoGen refuses."""
        text = result.content if isinstance(result.content, str) else result.thought or ""
        answer = Answer(text, agent=self._agent)
        names = ("prompt_tokens", "completion_tokens")
        self._adapter.after_model(answer.with_usage(result.usage, names))
        if isinstance(result.content, str) or self._adapter.is_instrumented():
            # OpenInference has a span of each call.
            return
        tools: Any = options.get("tools", ())
        known = [one.schema["name"] if hasattr(one, "schema") else one["name"] for one in tools]
        for one in result.content:
            said = _unreadable(one.arguments)
            if said is not None or one.name not in known:
                self._adapter.tool_call(
                    one.name, one.arguments, call_id=one.id, agent=self._agent
                ).report(said)

    async def _with_hint(self, messages: Any) -> Any:
        hint = await self._adapter.before_model_async()
        if hint is None:
            return messages
        return [*messages, _models.UserMessage(content=hint, source="loopguard")]


def _unreadable(arguments: str) -> str | None:
    """What AutoGen answers where the arguments of a call are no JSON; None where they are."""
    try:
        json.loads(arguments)
    except json.JSONDecodeError as error:
        return f"Error: {error}"
    except (ValueError, RecursionError):  # a number or a depth at which AutoGen fails itself
        return None
    return None


class _Workbench(_Around):
    """A workbench that asks the guard before each call."""

    def __init__(self, inner: Any, adapter: Adapter, agent: str) -> None:
        super().__init__(inner, adapter, agent)
        # What stopped a call; raised there it would leave the agent waiting for ever.
        self.stop: LoopGuardStop | None = None
        self._captures = isinstance(inner, _tools.StaticWorkbench)
        # What checks the arguments of each tool.
        self._models: dict[str, Any] = {}
        for tool in getattr(inner, "_tools", ()) if self._captures else ():
            self._models[tool.name] = tool.args_type()
            for method in ("run", "run_stream"):
                if hasattr(tool, method):
                    # Inside of AutoGen's span of the call.
                    setattr(tool, method, captured(getattr(tool, method)))

    async def call_tool(self, name: str, arguments: Any = None, *rest: Any, **known: Any) -> Any:
        call, refused = await self._asked(name, arguments, known)
        if refused is not None:
            return refused
        if self._captures:
            with capturing(call):
                return await self._inner.call_tool(name, arguments, *rest, **known)
        with call:
            result = await self._inner.call_tool(name, arguments, *rest, **known)
            text = result.to_text()
            call.set_result(text, failed=text if result.is_error else None)
        return result

    async def _asked(self, name: str, arguments: Any, known: Any) -> tuple[ToolCall, Any]:
        """A call, and the result that replaces it; None to make the call."""
        call_id = known.get("call_id")
        args = dict(arguments or {})
        call = self._adapter.tool_call(name, args, call_id=call_id, agent=self._agent)
        try:
            said = await call.refusal_async()
        except LoopGuardStop as stop:
            self.stop, said = stop, str(stop)
        said = said or self._wrong(call)
        if said is None:
            return call, None
        content = [_tools.TextResultContent(content=said)]
        return call, _tools.ToolResult(name=name, result=content, is_error=True)

    def _wrong(self, call: ToolCall) -> str | None:
        """The fault in the arguments of a call, for which the tool does not run; None for none."""
        try:
            if call.tool in self._models:
                self._models[call.tool].model_validate(call.args)
        except ValidationError as error:
            with call:
                call.set_result(str(error), failed=str(error))
            return str(error)
        return None


class _Streaming(_Workbench, _tools.StaticStreamWorkbench):
    """As above for streaming tools; the agent checks for this class."""

    async def call_tool_stream(
        self, name: str, arguments: Any = None, *rest: Any, **known: Any
    ) -> AsyncGenerator[Any, None]:
        call, refused = await self._asked(name, arguments, known)
        if refused is not None:
            yield refused
            return
        with capturing(call):
            async for item in self._inner.call_tool_stream(name, arguments, *rest, **known):
                yield item
