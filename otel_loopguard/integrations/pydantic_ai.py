"""pydantic-ai 2: a capability of an agent.

::

    agent = Agent(model, capabilities=[LoopGuardCapability()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import NoOpTracer
from pydantic import ValidationError

from otel_loopguard._control.context import CurrentCall, current_call, set_current_call
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.integrations._adapter import Adapter, Answer, Limit, Options, require
from otel_loopguard.integrations._runs import Round, folded, key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from otel_loopguard.integrations._adapter import ToolCall

_capabilities: Any = require("pydantic_ai.capabilities", "pydantic-ai")
_exceptions: Any = require("pydantic_ai.exceptions", "pydantic-ai")
_messages: Any = require("pydantic_ai.messages", "pydantic-ai")
_REFUSALS: Final = (_exceptions.ModelRetry, _exceptions.ToolRetryError, ValidationError)
_OUTPUT: Final = "output_function"
"""Name of an output that no tool gives and no function takes, as in the framework's own spans."""
# Something other than the agent makes the call, later.
_PASSING: Final = (_exceptions.ApprovalRequired, _exceptions.CallDeferred)
_WAITING: Final = ("external", "unapproved")
"""Kinds of tools that are not called before somebody else has answered."""
_MOST_WAITING: Final = 1024
"""Ids of calls that wait for an answer: more than the conversations of a process have at a time."""


class LoopGuardCapability(_capabilities.AbstractCapability):
    """Does at each model request and tool call what the guard decided.

    * Before a request: waits while the session is paused; the hint is a user prompt that goes into
      this request, after the results of its tool calls, and stays in the history.
    * Before a tool call: waits likewise; a refused call is a failed one (`ToolFailed`), which costs
      no retry of the tool.
    * An abort raises `LoopGuardAbort` out of `run`, with the results so far.

    The session is the one that `otel_loopguard.session` names, else the `conversation_id`, which
    every run has and its spans say.

    Args:
        repair: Whether calls that were made three times or more in a row, with equal answers, are
            one call and a note in what the model is sent. The history stays as it is.
        **options: As of `Adapter`.
    """

    def __init__(self, *, repair: bool = False, **options: Unpack[Options]) -> None:
        self._repairs = repair
        # The framework's own span of a call is the current one where there is one.
        self._adapter = Adapter("pydantic_ai", passing=_PASSING, **options)
        self._waiting: BoundedDict[tuple[str, str], None] = BoundedDict(_MOST_WAITING)

    async def before_run(self, ctx: Any) -> None:
        """A run of the conversation begins."""
        self._adapter.begin(ctx.conversation_id)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Gate and hint."""
        self._report_answers(ctx, request_context.messages)
        hint = await self._adapter.before_model_async(ctx.conversation_id, limit=_limit(ctx))
        if hint is not None:
            # By `ctx.enqueue` it would come one request later in versions before 2.60.
            said = _note(hint)
            said.run_id, said.conversation_id = ctx.run_id, ctx.conversation_id
            request_context.messages = [*request_context.messages, said]
            ctx.messages.append(said)
        if self._repairs:
            # A list of its own: what is changed in the one at hand, is changed in the history.
            messages = [*request_context.messages]
            request_context.messages = folded(messages, _rounds(messages), _note)
        return request_context

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Reports the answer to the guard, if no span does."""
        del request_context
        answer = Answer(response.text or "", response.model_name, _agent(ctx))
        usage = response.usage
        cached = answer.with_usage(usage).with_cache(
            getattr(usage, "cache_read_tokens", None), getattr(usage, "cache_write_tokens", None)
        )
        self._adapter.after_model(cached, ctx.conversation_id)
        find: Any = getattr(getattr(ctx, "tool_manager", None), "get_tool_def", None)
        for call in response.tool_calls if find else ():
            tool = find(call.tool_name)
            if tool is None:
                self._call(ctx, call, call.args).report()
            elif tool.kind in _WAITING:
                self._waiting[ctx.conversation_id, call.tool_call_id] = None
        return response

    async def wrap_tool_validate(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Tells of a call whose arguments are wrong, by a span if the framework writes none."""
        del tool_def
        outer = current_call()
        try:
            return await handler(args)
        except (_exceptions.ModelRetry, ValidationError) as error:
            hidden = not isinstance(ctx.tracer, NoOpTracer)
            self._call(ctx, call, args).start(hidden=hidden).end(error)
            raise
        finally:
            set_current_call(outer)

    async def on_tool_validate_error(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        """Passes on what the framework's span of the call, which begins next, may not say."""
        del ctx, tool_def
        set_current_call(CurrentCall(call.tool_name, args, str(error)))
        raise error

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any], handler: Any
    ) -> Any:
        """Gate and refusal, around a call of a tool."""
        del tool_def
        key = ctx.conversation_id, call.tool_call_id
        self._waiting.pop(key, None)
        ours = self._call(ctx, call, args)
        refusal = await ours.refusal_async()
        if refusal is not None:
            raise _exceptions.ToolFailed(refusal)
        with ours:
            try:
                outcome = await handler(args)
            except _PASSING:
                self._waiting[key] = None
                raise
            ours.set_result(outcome)
            return outcome

    async def wrap_output_validate(
        self, ctx: Any, *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        """Reports an output that is not valid, which the model has to give again."""
        try:
            return await handler(output)
        except _REFUSALS as error:
            if not ctx.partial_output:
                call = output_context.tool_call
                if call is None:
                    name = getattr(output_context, "function_name", None) or _OUTPUT
                    call = _messages.ToolCallPart(name, output, tool_call_id="")
                self._call(ctx, call, call.args).report(str(error))
            raise

    wrap_output_process = wrap_output_validate

    def _report_answers(self, ctx: Any, messages: Sequence[Any]) -> None:
        """Reports what others answered to the newest calls, as the agent makes none of these."""
        newest = [part for message in messages[-2:] for part in message.parts]
        calls = {part.tool_call_id: part for part in newest if part.part_kind == "tool-call"}
        for part in newest:
            key = ctx.conversation_id, getattr(part, "tool_call_id", "")
            if part.part_kind == "tool-return" and key in self._waiting:
                del self._waiting[key]
                call, failed = calls.get(key[1]), getattr(part, "outcome", "success") != "success"
                if call is not None:
                    said = part.model_response_str()
                    self._call(ctx, call, call.args).report(said, failed=failed)

    def _call(self, ctx: Any, call: Any, args: object) -> ToolCall:
        return self._adapter.tool_call(
            call.tool_name,
            args,
            call_id=call.tool_call_id,
            session=ctx.conversation_id,
            agent=_agent(ctx),
        )


def _note(text: str) -> Any:
    return _messages.ModelRequest([_messages.UserPromptPart(text)])


def _rounds(messages: Sequence[Any]) -> list[Round]:
    """The messages, with each answer of a model and the results of its calls as one."""
    found: list[Round] = []
    place = 0
    while place < len(messages):
        key = None if place + 1 == len(messages) else _key(*messages[place : place + 2])
        stop = place + 1 if key is None else place + 2
        found.append(Round(place, stop, key))
        place = stop
    return found


def _key(response: Any, request: Any) -> bytes | None:
    """The key of a round; None if there is anything else in its request, as a hint."""
    if response.kind != "response" or request.kind != "request":
        return None
    calls = [part for part in response.parts if part.part_kind == "tool-call"]
    results = {part.tool_call_id: part for part in request.parts if part.part_kind == "tool-return"}
    whole = len(results) == len(request.parts)
    if not calls or not whole or results.keys() != {call.tool_call_id for call in calls}:
        return None
    return key_of(
        (call.tool_name, call.args_as_json_str(), [one.content, one.outcome])
        for call in calls
        for one in (results[call.tool_call_id],)
    )


def _limit(ctx: Any) -> Limit | None:
    """Requests of `UsageLimits` that the run has made, including this one."""
    most = getattr(getattr(ctx, "usage_limits", None), "request_limit", None)
    return None if most is None else Limit("request_limit", ctx.usage.requests + 1, most)


def _agent(ctx: Any) -> str | None:
    return None if ctx.agent is None else ctx.agent.name
