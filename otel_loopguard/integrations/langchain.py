"""LangChain 1.x and LangGraph: a middleware for `create_agent`, and for the calls of a `ToolNode`.

::

    agent = create_agent(model, tools, middleware=[LoopGuardMiddleware()])
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from opentelemetry import trace

from otel_loopguard import control
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.integrations._adapter import (
    Adapter,
    Answer,
    Limit,
    end_run,
    is_instrumented,
    require,
)
from otel_loopguard.integrations._runs import Round, folded, key_of

if TYPE_CHECKING:
    from uuid import UUID

    from opentelemetry.trace import Span
    from typing_extensions import Unpack

    from otel_loopguard.integrations._adapter import Options, ToolCall

_middleware: Any = require("langchain.agents.middleware", "langchain")
_messages: Any = require("langchain_core.messages", "langchain")
_callbacks: Any = require("langchain_core.callbacks", "langchain")
_tracers: Any = require("langchain_core.tracers.context", "langchain")
_langgraph: Any = require("langgraph.config", "langchain")
_types: Any = require("langgraph.types", "langchain")
# An interrupt, or a command for the graph above: no failure of the call.
_PASSING: Final = (require("langgraph.errors", "langchain").GraphBubbleUp,)
_OPENINFERENCE: Final = "openinference.instrumentation.langchain"
_RUNS: Final = 1024
"""Runs that are under way or have just ended; a process has fewer at a time."""
_RUNTIME: Final = "__pregel_runtime"
"""Key of LangGraph's runtime in `configurable`, for tools outside of an agent."""


class _Run:
    """A run of a graph or a chain, and its spans once the middleware has been called in it.

    Attributes:
        outer: The run around it; None for an outermost one.
        above: The span that was current when it began.
        session: Key of its session, once the middleware knows it.
        hidden: The span that only the default guard sees, if there is one.
    """

    def __init__(self, outer: _Run | None) -> None:
        self.outer = outer
        self.above = trace.get_current_span()
        self.session: str | None = None
        self.hidden: Span | None = None
        self._began = time.time_ns()
        # Not by `new_lock`: a span starts while it is held, and would wait until it is not.
        self._lock = threading.Lock()
        self._span: Span | None = None
        self._known = False

    def span(
        self, adapter: Adapter, agent: str | None, session: str | None, above: Span | None
    ) -> Span | None:
        """The span that the adapter opened for the run; None where others write it, or it ended.

        The hidden one is in the trace of those of others (`above`), if there are any.
        """
        with self._lock:
            if not self._known:
                self._known = True
                place, outer, began = self.above, self.outer, self._began
                if outer is not None:
                    around = outer.span(adapter, None, session, above)
                    # Within a call of the run around it, it is below the call.
                    place, above = around if place is outer.above else place, outer.hidden or above
                self.hidden = adapter.start_default_run_span(agent, session, began, above)
                self._span = adapter.start_run_span(agent, session, began, place)
            return self._span

    def end(self, error: BaseException | None) -> None:
        """Ends the spans, if there are any."""
        with self._lock:
            spans = self._span, self.hidden
            self._known, self._span, self.hidden = True, None, None
        for span in spans:
            if span is not None:
                end_run(span, error)


_running: ContextVar[_Run | None] = ContextVar("loopguard-langchain-run", default=None)


def session_around() -> str | None:
    """The session that the middleware gave the run around; None before it was called there."""
    run = _running.get()
    while run is not None and run.session is None:
        run = run.outer
    return None if run is None else run.session


class _RunEnds(_callbacks.BaseCallbackHandler):
    """Tells where runs of graphs, and outermost ones, begin and end: a middleware has no hook.

    Those of a middleware are nodes of the graph, and the last is not called where a run fails.
    """

    run_inline = True  # in the context of the run, in asyncio too
    ignore_llm = ignore_chat_model = ignore_retriever = ignore_agent = ignore_custom_event = True

    def __init__(self) -> None:
        self._runs: BoundedDict[UUID, _Run] = BoundedDict(_RUNS)

    def on_chain_start(
        self, *_: Any, run_id: UUID, metadata: dict[str, Any] | None = None, **known: Any
    ) -> None:
        outermost, facts = known.get("parent_run_id") is None, metadata or {}
        # Of a graph within a node of another; what runs in its nodes has their place.
        place = facts.get("checkpoint_ns")
        if outermost or (place and place == facts.get("langgraph_checkpoint_ns")):
            run = self._runs[run_id] = _Run(None if outermost else _running.get())
            _running.set(run)

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._end(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        self._end(run_id, error)

    def _end(self, run_id: UUID, error: BaseException | None) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            run.end(error)
            if run.outer is not None and _running.get() is run:
                _running.set(run.outer)


_ends: ContextVar[_RunEnds] = ContextVar("loopguard-langchain-ends", default=_RunEnds())  # noqa: B039
_tracers.register_configure_hook(_ends, inheritable=True)


class LoopGuardMiddleware(_middleware.AgentMiddleware):
    """Does at each model call and tool call what the guard decided. Put it first of all middleware.

    * Before a model call: waits while the session is paused; the hint is a user message at the end
      of that one request, and not in the state of the graph.
    * Before a tool call: waits likewise; a refused call is answered by a `ToolMessage` with status
      `error`.
    * An abort raises `LoopGuardAbort` out of `invoke`, with the results so far.

    It adds no node to the graph. The session is the one that `otel_loopguard.session` names, else
    the `thread_id`, else that of the spans, else one for each run. For a graph of your own there is
    `ToolNode(tools, wrap_tool_call=middleware.wrap_tool_call)`.

    Args:
        pause: What a paused run does: `gate` waits inside of the run; `interrupt` ends the call of
            the graph with an interrupt, which needs a checkpointer, and goes on with
            `Command(resume=…)`: the text "abort" aborts, any other text is told the model.
        repair: Whether calls that were made three times or more in a row, with equal answers, are
            one call and a note in what the model is sent. The state of the graph stays as it is.
        **options: As of `Adapter`.

    Raises:
        TypeError: There is no such option, or its value is of another type.
        ValueError: A paused run cannot do that.
    """

    def __init__(
        self,
        *,
        pause: Literal["gate", "interrupt"] = "gate",
        repair: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        if pause not in ("gate", "interrupt"):
            raise ValueError(f"pause must be 'gate' or 'interrupt', got {pause!r:.100}")
        self._adapter = Adapter(
            "langchain", instrumented=_instrumented, passing=_PASSING, **options
        )
        self._began: BoundedDict[str, int] = BoundedDict(_RUNS)
        self._interrupts = pause == "interrupt"
        self._repairs = repair

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Gate and hint, around a call of the model."""
        place, limit = self._at(request.runtime), self._limit(request.runtime)
        with self._adapter.within(place.opened, place.named):
            hint = self._adapter.before_model(place.session, place.span, limit=limit)
            return self._answered(place, request, handler(self._asked(request, hint)))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """As `wrap_model_call`."""
        place, limit = self._at(request.runtime), self._limit(request.runtime)
        with self._adapter.within(place.opened, place.named):
            hint = await self._adapter.before_model_async(place.session, place.span, limit=limit)
            return self._answered(place, request, await handler(self._asked(request, hint)))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Gate and refusal, around a call of a tool."""
        place = self._at(request.runtime)
        with self._adapter.within(place.opened, place.named):
            call = self._call(request.tool_call, request, place)
            refusal = call.refusal()
            if refusal is not None:
                return _refused(request, refusal)
            with call:
                return _with_result(call, handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        """As `wrap_tool_call`."""
        place = self._at(request.runtime)
        with self._adapter.within(place.opened, place.named):
            call = self._call(request.tool_call, request, place)
            refusal = await call.refusal_async()
            if refusal is not None:
                return _refused(request, refusal)
            with call:
                return _with_result(call, await handler(request))

    def _asked(self, request: Any, hint: str | None) -> Any:
        """The request with its repeats folded, if asked for, and the hint at its end."""
        messages: Sequence[Any] = request.messages
        if self._repairs:
            messages = folded(messages, _rounds(messages), _messages.HumanMessage)
        if hint is not None:
            messages = [*messages, _messages.HumanMessage(hint)]
        return request if messages is request.messages else request.override(messages=messages)

    def _answered(self, place: _Place, request: Any, answer: Any) -> Any:
        """Reports the answer to the guard, if no span does, and output that LangChain refuses."""
        response = getattr(answer, "model_response", answer)
        said, *told = getattr(response, "result", None) or [response]
        known = _answer(said, request.runtime)
        self._adapter.after_model(known, place.session, place.span, run=place.hidden)
        known = getattr(response, "structured_response", None) is not None
        if request.response_format is None or known:
            return answer
        results = {getattr(one, "tool_call_id", None): one for one in told}
        for asked in getattr(said, "tool_calls", ()):
            if asked["id"] in results:
                # No node of the graph makes this call.
                call = self._call(asked, request, place)
                call.report(str(results[asked["id"]].content))
        return answer

    def _call(self, asked: Any, request: Any, place: _Place) -> ToolCall:
        return self._adapter.tool_call(
            asked["name"],
            asked["args"],
            call_id=asked["id"],
            session=place.session,
            span=place.span,
            agent=_agent(request.runtime),
            run=place.hidden,
        )

    def _at(self, runtime: Any) -> _Place:
        """The place of the run; it is interrupted here if it is paused and to be interrupted."""
        ours = _part(_config(runtime), "configurable")
        run = _run(runtime)
        info = getattr(runtime, "execution_info", None)
        thread = ours.get("thread_id") or getattr(info, "thread_id", None)
        key = str(thread) if thread else None
        instrumented = _instrumented()
        span = _span() if instrumented else None
        begins = run is not None and not self._adapter.knows_run(run)
        own = None if run is None else self._adapter.run_key(run)
        session = key or (own if span is None else None)
        around, opened, hidden = _running.get(), None, None
        if around is not None:
            around.session = session
            opened = around.span(self._adapter, _agent(runtime), session, span)
            hidden = around.hidden
            if trace.get_current_span() is not around.above:
                # The application made one current in the run.
                opened = None
        # Without a span above or a thread, only our name joins what others write below.
        unnamed = instrumented and span is None and key is None
        place = _Place(session, span, opened, session if opened or unnamed else None, hidden)
        if begins:
            self._adapter.begin(key, hidden or span or opened)
        if self._interrupts:
            self._interrupt(place)
        return place

    def _limit(self, runtime: Any) -> Limit | None:
        """Steps of `recursion_limit` that the run has taken; a thread continues the count."""
        config, run = _config(runtime), _run(runtime)
        most, step = config.get("recursion_limit"), _part(config, "metadata").get("langgraph_step")
        if run is None or not isinstance(most, int) or not isinstance(step, int):
            return None
        first = self._began.setdefault(self._adapter.run_key(run), step)
        return Limit("recursion_limit", step - first + 1, most)

    def _interrupt(self, place: _Place) -> None:
        found = self._adapter.find(place.session, place.span)
        if found is None or not found.flag.held:
            return
        now = found.flag.control
        answer = _types.interrupt({"session": now.session, "reason": now.reason})
        if answer == "abort":
            control.abort(now.session or "", "aborted in answer to an interrupt")
        else:
            said = answer if isinstance(answer, str) else None
            control.resume(now.session or "", guidance=said)


class _Place(NamedTuple):
    """The place of a run: its key, the span above, the one opened, and the key for spans below.

    The last is the one opened that only the default guard sees.
    """

    session: str | None
    span: Span | None
    opened: Span | None
    named: str | None
    hidden: Span | None


def _rounds(messages: Sequence[Any]) -> list[Round]:
    """The messages, with each answer of a model and the results of its calls as one."""
    found: list[Round] = []
    place = 0
    while place < len(messages):
        calls = getattr(messages[place], "tool_calls", None) or ()
        stop = place + 1 + len(calls)
        results = {getattr(one, "tool_call_id", None): one for one in messages[place + 1 : stop]}
        key = None
        if calls and results.keys() == {call["id"] for call in calls}:
            key = key_of(
                (call["name"], call["args"], [one.content, one.status])
                for call in calls
                for one in (results[call["id"]],)
            )
        stop = stop if key else place + 1
        found.append(Round(place, stop, key))
        place = stop
    return found


def _answer(message: Any, runtime: Any) -> Answer:
    usage: Any = getattr(message, "usage_metadata", None) or {}
    cached: Any = usage.get("input_token_details") or {}
    known: Any = getattr(message, "response_metadata", None) or {}
    return Answer(
        str(getattr(message, "text", "")),
        known.get("model_name"),
        _agent(runtime),
        usage.get("input_tokens"),
        usage.get("output_tokens"),
    ).with_cache(cached.get("cache_read"), cached.get("cache_creation"))


def _agent(runtime: Any) -> str | None:
    return _part(_config(runtime), "metadata").get("lc_agent_name")


def _refused(request: Any, refusal: str) -> Any:
    asked = request.tool_call
    known = {"tool_call_id": asked["id"], "name": asked["name"], "status": "error"}
    return _messages.ToolMessage(refusal, **known)


def _with_result(call: ToolCall, answer: Any) -> Any:
    if isinstance(answer, _messages.ToolMessage):
        failed = str(answer.content) if answer.status == "error" else None
        call.set_result(answer.content, failed=failed)
    else:
        call.set_result(_changed(getattr(answer, "update", None)))
    return answer


def _changed(update: Any) -> Any:
    """Changes of a `Command`, without the ids of its messages, which are new in every call."""
    if not isinstance(update, dict):
        return update
    known = cast("dict[str, Any]", update)
    told = [getattr(one, "content", one) for one in known.get("messages", ())]
    rest = {name: value for name, value in known.items() if name != "messages"}
    return {**rest, "messages": told} if rest or len(told) != 1 else told[0]


def _config(runtime: Any = None) -> Mapping[str, Any]:
    found = getattr(runtime, "config", None)
    if found:
        return found
    try:
        return _langgraph.get_config()
    except RuntimeError:
        # In asyncio before Python 3.11 it is not handed down.
        return {}


def _run(runtime: Any) -> Any:
    """One object for each run, which LangGraph hands down to all its nodes."""
    ours = _part(_config(runtime), "configurable")
    return getattr(runtime, "control", None) or getattr(ours.get(_RUNTIME), "control", None)


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return config.get(name) or {}


def _span() -> Span | None:
    """The span above: OpenInference makes none of its spans current, Langfuse none in asyncio."""
    module = sys.modules.get(_OPENINFERENCE)
    found = (None if module is None else module.get_current_span()) or trace.get_current_span()
    return found if found.get_span_context().is_valid else None


def _instrumented() -> bool:
    """True if anything writes spans of the calls; Langfuse does it by a callback of the run."""
    handlers = getattr(_config().get("callbacks"), "handlers", ())
    by_langfuse = any(type(one).__module__.startswith("langfuse") for one in handlers)
    return by_langfuse or is_instrumented("langchain")
