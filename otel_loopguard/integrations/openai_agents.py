"""OpenAI Agents SDK: `Runner.run(agent, …, hooks=LoopGuardHooks())`."""

from __future__ import annotations

import functools
import time
import weakref
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypedDict

from opentelemetry import trace

from otel_loopguard._util.bounded import loads
from otel_loopguard._util.text import check_number
from otel_loopguard.integrations._adapter import (
    Adapter,
    Answer,
    Limit,
    ToolCall,
    is_instrumented,
    raising_as,
    require,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from typing_extensions import Unpack

    from otel_loopguard.integrations._adapter import Options

_agents: Any = require("agents", "openai-agents")
_REFUSED: Final = "refused by the guard"
_OPENINFERENCE: Final = "openinference.instrumentation.openai_agents"


class _Spans(TypedDict, total=False):
    """The spans of a run where nothing else writes them, as the adapter takes them."""

    span: Span | None
    run: Span | None  # which only the default guard sees


class _Inside:
    """The runs of agents inside of a call, whose spans tell apart what runs at the same time.

    Where a run fails it has no `on_agent_end`: its spans end with this object.
    """

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self._runs: dict[int, _Spans] = {}
        weakref.finalize(self, _end_all, self._runs).atexit = False

    def begin(self, adapter: Adapter, usage: object, agent: str, session: str | None) -> None:
        """Starts the spans of a run, which is told by what it counts its usage with."""
        if id(usage) not in self._runs:
            above, hidden = self.call.spans
            began = time.time_ns()
            self._runs[id(usage)] = {
                "span": adapter.start_run_span(agent, session, began, above),
                "run": adapter.start_default_run_span(agent, session, began, hidden),
            }

    def end(self, usage: object) -> None:
        """Ends the spans of a run."""
        _end(self._runs.pop(id(usage), {}))

    def spans(self, usage: object) -> _Spans:
        """The spans of a run."""
        return self._runs.get(id(usage), {})


def _end_all(runs: dict[int, _Spans]) -> None:
    for spans in runs.values():
        _end(spans)


def _end(spans: _Spans) -> None:
    for span in (spans.get("span"), spans.get("run")):
        if span is not None:
            span.end()


_inside: ContextVar[_Inside | None] = ContextVar("loopguard-openai-agents-call", default=None)


class LoopGuardHooks(_agents.RunHooks):
    """The hooks of a run, in which the guard's decisions are followed.

    ::

        await Runner.run(agent, "Find it.", hooks=LoopGuardHooks())

    One object may serve any number of runs at the same time. To have hooks of your own, derive from
    it and call `super()`.

    Before a call of the model it waits while the session is paused, and puts the hint at the end of
    the request, as a message of the user; the hint is in this one request. Before a local tool it
    waits too; a call of a denied loop is rejected, by a guardrail that is added to the function
    tools of the agent. A stop reaches the caller as `LoopGuardAbort`, which is an `AgentsException`
    as well and has `run_data`.

    The session is the one that is named, else the group of the SDK's own tracing, else the trace.
    Without an instrumentation it is the SDK's trace, which is the run unless you put several into
    one.

    Args:
        max_turns: The `max_turns` of the runs, which the SDK does not tell its hooks; the model is
            told when four fifths of it are used. By default it is not told.
        **options: As of `Adapter`.

    Raises:
        TypeError: There is no such option, or a value is of another type.
    """

    def __init__(self, *, max_turns: int | None = None, **options: Unpack[Options]) -> None:
        if max_turns is not None:
            check_number("max_turns", max_turns, whole=True)
        self._max_turns = max_turns
        self._adapter = Adapter("openai_agents", instrumented=_instrumented, **options)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Puts the guardrail on the function tools of an agent that begins."""
        self._enter(context)
        session, inside = self._session(context), _inside.get()
        if not context.usage.requests:
            self._adapter.begin(session)
        if inside is not None:
            inside.begin(self._adapter, context.usage, agent.name, session)
        for tool in agent.tools:
            if isinstance(tool, _agents.FunctionTool) and _guardrail not in _guardrails(tool):
                tool.tool_input_guardrails = [*_guardrails(tool), _guardrail]

    async def on_agent_end(self, context: Any, agent: Any, output: object) -> None:
        """Ends the spans of a run inside of a call."""
        del agent, output
        inside = _inside.get()
        if inside is not None:
            inside.end(context.usage)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Waits while the session is paused, and puts the hint into the request."""
        del agent, system_prompt
        with raising_as(_agents.AgentsException):
            session, limit = self._session(context), self._limit(context)
            said = await self._adapter.before_model_async(session, limit=limit)
        if said is not None:
            input_items.append({"role": "user", "content": said})

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Reports the answer to the guard, if no span does."""
        items = (getattr(item, "content", None) or () for item in response.output)
        texts = (getattr(block, "text", None) for blocks in items for block in blocks)
        answer = Answer("\n".join(filter(None, texts)), agent=agent.name)
        details = getattr(response.usage, "input_tokens_details", None)
        cached = getattr(details, "cached_tokens", None)
        answer = answer.with_usage(response.usage).with_cache(cached)
        self._adapter.after_model(answer, self._session(context), **self._spans(context))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Reports the handoff to the guard, if no span does."""
        self._adapter.handed_off(
            to_agent.name, from_agent.name, session=self._session(context), **self._spans(context)
        )

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Waits while the session is paused, and begins the call's span if it has none."""
        self._enter(context)
        inside, said = _inside.get() if _guardrail in _guardrails(tool) else None, None
        if inside is not None and inside.call.call_id == context.tool_call_id:
            # The guardrail has asked.
            call = inside.call
        else:
            call = self._call(context, agent, tool.name)
            with raising_as(_agents.AgentsException):
                said = await call.refusal_async()
        if said is not None and isinstance(tool, _agents.FunctionTool):
            _answer_with(said, tool, context.tool_call_id)
        elif isinstance(context, _agents.tool_context.ToolContext):
            key = self._key(context)
            self._adapter.start_call(key, call)
            # A tool that raises out of the run has no `on_tool_end`.
            weakref.finalize(context, self._adapter.end_call, key).atexit = False

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """Takes the result of a call, and ends its span."""
        del agent, tool
        current = _agents.get_current_span()
        error = None if current is None else current.error
        failed = None if error is None else error["message"]
        # With the SDK's tracing off, only its words to the model say that a tool raised.
        if failed is None and result == _agents.default_tool_error_function(context, Exception()):
            failed = str(result)
        self._adapter.finish_call(self._key(context), result, failed)

    async def before_function(self, data: Any) -> Any:
        """Waits while the session is paused, and rejects a call that is not to be made."""
        call = self._call(data.context, data.agent, data.context.tool_name)
        with raising_as(_agents.AgentsException):
            said = await call.refusal_async()
        if said is None:
            # Each call has a task of its own, and the runs in it are below the call.
            _inside.set(_Inside(call))
            return _agents.ToolGuardrailFunctionOutput.allow()
        _say_refused()
        return _agents.ToolGuardrailFunctionOutput.reject_content(said)

    def _enter(self, context: Any) -> None:
        """The tools of a run ask its hooks; a run ends with what all of its contexts share."""
        run = id(context.usage)
        if run not in _running:
            _running[run] = self
            weakref.finalize(context.usage, _running.pop, run, None).atexit = False

    def _call(self, context: Any, agent: Any, tool: str) -> ToolCall:
        args = getattr(context, "tool_arguments", None)
        if isinstance(args, str):
            with suppress(ValueError):
                args = loads(args)
        return self._adapter.tool_call(
            tool,
            args,
            call_id=getattr(context, "tool_call_id", None),
            session=self._session(context),
            agent=agent.name,
            **self._spans(context),
        )

    def _spans(self, context: Any) -> _Spans:
        inside = _inside.get()
        return {} if inside is None else inside.spans(context.usage)

    def _limit(self, context: Any) -> Limit | None:
        """Turns that the run has taken, including this one."""
        most = self._max_turns
        return None if most is None else Limit("max_turns", context.usage.requests + 1, most)

    def _key(self, context: Any) -> tuple[int, str | None]:
        return id(context.usage), getattr(context, "tool_call_id", None)

    def _session(self, context: Any) -> str | None:
        traced = _agents.get_current_trace() if _traced() else None
        if _instrumented():
            return getattr(traced, "group_id", None)
        # What all contexts of one run share, where the SDK does not trace either.
        return self._adapter.run_key(context.usage) if traced is None else traced.trace_id


_running: dict[int, LoopGuardHooks] = {}


async def _before_function(data: Any) -> Any:
    # A guardrail outlives the run that put it there.
    hooks = _running.get(id(data.context.usage))
    if hooks is None:
        return _agents.ToolGuardrailFunctionOutput.allow()
    return await hooks.before_function(data)


_guardrail: Any = _agents.ToolInputGuardrail(_before_function, name="loopguard")


def _guardrails(tool: Any) -> list[Any]:
    return getattr(tool, "tool_input_guardrails", None) or []


def _answer_with(said: str, tool: Any, call_id: str) -> None:
    """Has one call of a tool that the SDK made for this turn (MCP) answered with a text."""
    invoke = tool.on_invoke_tool

    @functools.wraps(invoke)
    async def answer(context: Any, arguments: str) -> Any:
        if getattr(context, "tool_call_id", call_id) == call_id:
            return said
        return await invoke(context, arguments)

    _say_refused()
    tool.on_invoke_tool = answer


def _say_refused() -> None:
    """Has whatever reads the SDK's tracing say that the call failed."""
    current = _agents.get_current_span()
    if current is not None:
        current.set_error(_agents.SpanError(message=_REFUSED, data=None))


def _traced() -> bool:
    current = _agents.get_current_trace()
    return current is not None and not isinstance(current, _agents.tracing.traces.NoOpTrace)


def _instrumented() -> bool:
    """True if anything makes spans of the SDK's tracing; Logfire does it by a provider."""
    by_logfire = type(_agents.tracing.get_trace_provider()).__module__.startswith("logfire")
    return _traced() and (by_logfire or is_instrumented("openai_agents") or _by_openinference())


def _by_openinference() -> bool:
    """True in a run that OpenInference sees: none that goes on after somebody approved a call."""
    scope = getattr(trace.get_current_span(), "instrumentation_scope", None)
    seen = scope is not None and scope.name == _OPENINFERENCE
    return seen and is_instrumented("openai_agents openinference")
