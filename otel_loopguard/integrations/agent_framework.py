"""Microsoft Agent Framework: middleware of an agent.

::

    agent = Agent(client=client, tools=tools, middleware=loopguard_middleware())
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from otel_loopguard._control.context import named_session, session
from otel_loopguard.integrations._adapter import Adapter, Answer, Options, raising_as, require
from otel_loopguard.integrations._runs import captured, capturing

if TYPE_CHECKING:
    from typing_extensions import Unpack


_framework: Any = require("agent_framework", "agent-framework")
_exceptions: Any = require("agent_framework.exceptions", "agent-framework")
_Next = Callable[[], Awaitable[None]]
_SCOPE: Final = "agent_framework"
# The call waits for what its user says.
_PASSING: Final = (_exceptions.UserInputRequiredException,)


def loopguard_middleware(**options: Unpack[Options]) -> list[Any]:
    """Middleware of an agent, which does what the guard decided; put it first of all middleware.

    * Around a run: the session is the one that `otel_loopguard.session` names, else that of the
      framework's span around the run (a workflow), else the `session_id` of the run's
      `AgentSession`, else one for each run. The spans of the run belong to it.
    * Before a model call: waits while the session is paused; the hint is a user message at the end
      of that one request.
    * Before a tool call: waits likewise; a refused call has what the model is told as its result.
    * An abort is a `LoopGuardAbort` out of `run`, with the results so far; it is the framework's
      `MiddlewareFailure` too where it was raised before a tool.

    The functions of tools that are called are wrapped, once each, so that the guard is told
    arguments and results where the framework's spans do not say them. Outside of a run with this
    middleware they are as they were.

    Args:
        **options: As of `Adapter`.

    Returns:
        Middleware for the run, for requests and for tool calls, in this order.
    """
    # Asked inside of the framework's own span of the call, where there is one.
    adapter = Adapter("agent_framework", passing=_PASSING, **options)
    return [_AgentMiddleware(adapter), _ChatMiddleware(adapter), _FunctionMiddleware(adapter)]


class _Middleware:
    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter


class _AgentMiddleware(_Middleware, _framework.AgentMiddleware):
    """Names the session."""

    async def process(self, context: Any, call_next: _Next) -> None:
        # A workflow gives each of its agents a session, and is one run.
        inside = _inside()
        found = self._adapter.find() if inside else None
        key = _key(context) if found is None else found.key
        self._adapter.begin(key)
        if key is None and not inside:
            key = f"run-{uuid.uuid4().hex}"
        named = nullcontext if key is None or named_session() else functools.partial(session, key)
        with named():
            await call_next()
        if context.stream and context.result is not None:
            # The run is made while its stream is read, wherever that is.
            context.result.with_pull_context_manager(named)


class _ChatMiddleware(_Middleware, _framework.ChatMiddleware):
    """Gate and hint."""

    async def process(self, context: Any, call_next: _Next) -> None:
        hint = await self._adapter.before_model_async(_key(context))
        if hint is not None:
            told = _framework.Message(role="user", contents=[hint])
            context.messages = [*context.messages, told]
        await call_next()
        if isinstance(context.result, _framework.ChatResponse):
            self._answered(context, context.result)
        elif context.stream and context.result is not None:
            context.stream_result_hooks.append(functools.partial(self._answered, context))

    def _answered(self, context: Any, response: Any) -> Any:
        """Reports the answer to the guard, if no span does."""
        self._adapter.after_model(Answer(response.text or ""), _key(context))
        return response


class _FunctionMiddleware(_Middleware, _framework.FunctionMiddleware):
    """Gate and refusal."""

    async def process(self, context: Any, call_next: _Next) -> None:
        args = context.arguments
        call = self._adapter.tool_call(
            context.function.name,
            dict(args.model_dump() if hasattr(args, "model_dump") else args),
            call_id=context.metadata.get("call_id"),
            session=_key(context),
        )
        with raising_as(_framework.MiddlewareFailure):
            refusal = await call.refusal_async()
        if refusal is not None:
            context.result = refusal
            return
        # Inside of the framework's span of the call.
        tool = context.function
        while isinstance(tool.func, _framework.FunctionTool):
            tool = tool.func
        if tool.func is not None:
            tool.func = captured(tool.func)
        with capturing(call):
            await call_next()


def _inside() -> bool:
    """True if the run is part of another run that the framework writes spans for."""
    span = trace.get_current_span()
    scope = span.instrumentation_scope if isinstance(span, ReadableSpan) else None
    return scope is not None and scope.name == _SCOPE


def _key(context: Any) -> str | None:
    return None if context.session is None else context.session.session_id
