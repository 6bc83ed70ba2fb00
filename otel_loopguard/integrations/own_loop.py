"""A loop of one's own: `with otel_loopguard.turn() as turn: turn.tool("search", args, search)`."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanKind, TracerProvider

from otel_loopguard._control.context import (
    Entered,
    current_flag,
    flag_at,
    live_guards,
    named_session,
    naming,
    session_key,
)
from otel_loopguard._control.flag import NOTHING, Control
from otel_loopguard._control.limits import Block
from otel_loopguard._util.text import expected, named
from otel_loopguard.evidence import as_data
from otel_loopguard.integrations._adapter import Adapter, Options, ToolCall, check_options, end_run
from otel_loopguard.sdk.provider import ensure_followed, guard_only_provider
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from typing_extensions import Self


_Result = TypeVar("_Result")
_KEY: Final = otel_context.create_key("loopguard-turn")
_SCOPE: Final = "otel_loopguard.integrations.turn"
_MAX_ITEMS: Final = 1000
"""Items of a generator that its result is compared by; it may be endless."""


class Refusal(str):
    """The text that the model gets in place of the result of a refused call."""

    __slots__ = ()


class turn(Block):  # noqa: N801  # reads as a statement: `with otel_loopguard.turn() as turn:`
    """A user's turn in a loop of your own: everything that an adapter does in a framework.

    ::

        with otel_loopguard.turn("chat-1") as turn:
            while True:
                if said := turn.hint():
                    messages.append({"role": "user", "content": said})
                name, args = ask_model(messages)
                messages.append({"role": "tool", "content": turn.tool(name, args, TOOLS[name])})

    It writes the `invoke_agent` span of the turn and an `execute_tool` span for each call, names
    the session, and tells the guard arguments and results beside the spans, which carry them only
    where `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for it. No other setting up is
    needed: a tracer provider that no guard watches yet is set up as by `otel_loopguard.setup`, and
    where there is none, or the trace is not sampled, the guard alone sees these spans.

    What the policy stopped in the session's turn before may go on. A turn inside of another one is
    a sub-agent of it, unless it names another session. `async with` does the same. Its methods may
    be called from any thread.

    Args:
        session: Key of the session: the conversation. By default the one that is named by
            `otel_loopguard.session`, or by the framework around; else the turn is a session of its
            own.
        agent: Name of the agent, as its spans have it.
        limit_s: Seconds that a paused turn waits at most; by default the setting `pause_limit_s`.
        content: Whether spans carry arguments and results; by default what the variable says.
        tracer_provider: Where spans are made; the global one by default.

    Raises:
        TypeError: The limit is no number, `content` neither true nor false, or the provider none.
        ValueError: The key, or the name of the agent, is empty or not a string.
        LoopGuardSettingsError: On entering, where the guard is made: a setting cannot be used.

    Attributes:
        session: Key of its session; empty before it begins.
    """

    def __init__(
        self,
        session: str | None = None,
        *,
        agent: str = "agent",
        limit_s: float | None = None,
        content: bool | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self.session = ""
        self._asked = None if session is None else named("key of a session", session)
        self._agent = named("name of an agent", agent)
        self._options = Options(
            spans=True, limit_s=limit_s, content=content, tracer_provider=tracer_provider
        )
        check_options(self._options)
        self._begun: tuple[Adapter, Span, Entered] | None = None
        self._owns_results = False

    @property
    def control(self) -> Control:
        """The control of the session now; `allow` if the guard knows nothing of it."""
        flag = flag_at(self.session) if self.session else None
        return NOTHING if flag is None else flag.read()

    def hint(self) -> str | None:
        """Call it before each call of the model: waits while the session is paused.

        Returns:
            What to tell the model, once per decision; None for nothing.

        Raises:
            LoopGuardAbort: The session is aborted.
            LoopGuardPaused: It was not let go on within the limit.
        """
        with self._inside() as adapter:
            return adapter.before_model(self.session)

    async def ahint(self) -> str | None:
        """As `hint`, without blocking the event loop."""
        with self._inside() as adapter:
            return await adapter.before_model_async(self.session)

    def tool(
        self,
        name: str,
        args: object,
        function: Callable[..., _Result],
        *,
        call_id: str | None = None,
    ) -> _Result | Refusal:
        """Makes a call of a tool, or refuses it.

        Waits while the session is paused. A refused call is on the trace as a failed one.

        Args:
            name: Name of the tool, as the model calls it.
            args: Its arguments: a map, which the function is given by name, also as the JSON text
                that models write; a sequence, which it is given in order; None for none; anything
                else is its one argument.
            function: What makes the call. A generator is a call until it ends.
            call_id: Id that the model gave the call.

        Returns:
            What the function returned, or the `Refusal`, a text for the model.

        Raises:
            LoopGuardAbort: The session is aborted.
            LoopGuardPaused: It was not let go on within the limit.
            TypeError: The name is not a string, or the function cannot be called or has to be
                awaited: use `atool`.
            ValueError: The arguments are a text that begins like a JSON object and is none.
        """
        if inspect.iscoroutinefunction(function):
            msg = f"function of {name!r} is a coroutine function: await turn.atool(...) instead"
            raise TypeError(msg)
        with self._inside() as adapter:
            call = self._tool_call(adapter, name, args, call_id, function)
            refusal = call.refusal()
            if refusal is not None:
                return Refusal(refusal)
            if inspect.isgeneratorfunction(function):
                return cast("_Result", self._iterate(call, function, args))
            with call:
                result = _apply(function, args)
                if inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    msg = f"what {name!r} returned is to be awaited: await turn.atool(...) instead"
                    raise TypeError(msg)
                call.set_result(as_data(result))
                return result

    # From a union mypy would take the plain result, and reject every `async def`.
    @overload
    async def atool(
        self, name: str, args: object, function: Callable[..., Awaitable[_Result]], *,
        call_id: str | None = None,
    ) -> _Result | Refusal: ...  # fmt: skip

    @overload
    async def atool(
        self, name: str, args: object, function: Callable[..., _Result], *,
        call_id: str | None = None,
    ) -> _Result | Refusal: ...  # fmt: skip

    async def atool(
        self, name: str, args: object, function: Callable[..., Any], *, call_id: str | None = None
    ) -> object:
        """As `tool`, without blocking the event loop while the session is paused.

        Args:
            name: As of `tool`.
            args: As of `tool`.
            function: What makes the call. What it returns is awaited where it can be; a plain
                function runs where it is called, on the event loop. An asynchronous generator is a
                call until it ends.
            call_id: As of `tool`.
        """
        with self._inside() as adapter:
            call = self._tool_call(adapter, name, args, call_id, function)
            refusal = await call.refusal_async()
            if refusal is not None:
                return Refusal(refusal)
            if inspect.isasyncgenfunction(function):
                return self._iterate_async(call, function, args)
            with call:
                result: object = _apply(function, args)
                if inspect.isawaitable(result):
                    result = await result
                call.set_result(as_data(result))
                return result

    def partial(self, result: object) -> None:
        """Keeps a result, which a stop carries along; those of tools are kept anyway."""
        flag = flag_at(self.session) if self.session else None
        if flag is not None:
            flag.add_part(result)

    def __enter__(self) -> Self:
        if self._begun is not None:
            raise RuntimeError("a turn begins once: make another one")
        Entered.leave_ended()
        outer = otel_context.get_value(_KEY)
        around = named_session() or _known_key()
        own = session_key(self._asked) if self._asked else around
        self.session = own or f"turn-{uuid.uuid4().hex}"
        # Else the results are also those of the run around.
        self._owns_results = around != self.session
        within = isinstance(outer, turn) and outer.session == self.session
        context = otel_context.set_value(_KEY, self, naming(self.session))
        span = self._started(context, named=own is not None)
        context = trace.set_span_in_context(span, context)
        adapter = Adapter("turn", **self._options)
        adapter.warn_if_off()
        if own is not None and not within:
            span_id = span.get_span_context().span_id
            for guard in live_guards():
                # In any trace: the application declared the turn.
                guard.next_run(own, 0, span_id)
        self._begun = adapter, span, Entered(context)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._begun is None:
            return
        _, span, entered = self._begun
        end_run(span, error)
        entered.leave()
        if error is None and self._owns_results and (flag := flag_at(self.session)) is not None:
            flag.drop_parts()

    def _started(self, context: Context, *, named: bool) -> Span:
        """The span of the turn, which a guard follows."""
        said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent}
        if named:
            said["gen_ai.conversation.id"] = self.session
        name = f"invoke_agent {self._agent}"

        def start() -> Span:
            tracer = trace.get_tracer(_SCOPE, __version__, self._options.get("tracer_provider"))
            return tracer.start_span(name, context, kind=SpanKind.INTERNAL, attributes=said)

        span = start()
        if ensure_followed(span, self._options.get("tracer_provider"), context):
            return span
        own = guard_only_provider()
        if own is None:
            return span
        if isinstance(span, ReadableSpan):
            span.end()
        self._options["tracer_provider"] = own
        return start()

    def _tool_call(
        self, adapter: Adapter, name: str, args: object, call_id: str | None, function: object
    ) -> ToolCall:
        if not isinstance(cast("object", name), str):
            msg = f"name: {expected('a string', name, 'turn.tool(name, args, function)')}"
            raise TypeError(msg)
        if not callable(function):
            msg = f"{name!r}: {expected('a function', function, 'turn.tool(name, args, function)')}"
            raise TypeError(msg)
        # That there are no arguments is known.
        known: object = dict[str, object]() if _is_none(args) else args
        return adapter.tool_call(
            name, known, call_id=call_id, session=self.session, agent=self._agent
        )

    def _iterate(self, call: ToolCall, function: Callable[..., Any], args: object) -> Any:
        """The items of a generator; its span begins with the first."""
        with self._collecting(call) as items:
            for item in _apply(function, args):
                items.append(item)
                yield item

    async def _iterate_async(
        self, call: ToolCall, function: Callable[..., Any], args: object
    ) -> Any:
        """As `_iterate`, of an asynchronous generator."""
        with self._collecting(call) as items:
            async for item in _apply(function, args):
                items.append(item)
                yield item

    @contextmanager
    def _collecting(self, call: ToolCall) -> Generator[_Items, None, None]:
        """The block of a call whose span is current only while its items are made."""
        with self._inside():
            call.start()
        items = _Items()
        try:
            yield items
        except BaseException as error:
            # A consumer that stops early (GeneratorExit) does not mean that the tool failed.
            call.end(error if isinstance(error, Exception) else None)
            raise
        texts = [item for item in items if isinstance(item, str)]
        call.set_result("".join(texts) if len(texts) == len(items) else list(items))
        call.end()

    @contextmanager
    def _inside(self) -> Generator[Adapter, None, None]:
        """The block in which the turn's context holds, on whatever thread."""
        if self._begun is None:
            raise RuntimeError("the turn has not begun: with otel_loopguard.turn() as turn: ...")
        adapter, _, entered = self._begun
        if otel_context.get_value(_KEY) is self:
            yield adapter
            return
        before = otel_context.get_current()
        otel_context.attach(entered.context)
        try:
            yield adapter
        finally:
            otel_context.attach(before)


class _Items(list[object]):
    """The first items of a call, as the guard compares them."""

    def append(self, item: object) -> None:
        if len(self) < _MAX_ITEMS:
            super().append(as_data(item))


def _known_key() -> str | None:
    """The key of the session around, where it has one that is no trace's."""
    flag = current_flag()
    key = None if flag is None else flag.control.session
    span = trace.get_current_span().get_span_context()
    return None if key == f"{span.trace_id:032x}" else key


def _is_none(args: object) -> bool:
    # An array compares each of its values.
    return args is None or (isinstance(args, str) and not args)


def _apply(function: Callable[..., Any], args: object) -> Any:
    """Calls a function with arguments as models write them, a JSON object in a text too."""
    if isinstance(args, str) and args.lstrip()[:1] == "{":
        try:
            args = json.loads(args)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"arguments of the call are not JSON: {error}") from None
    if isinstance(args, Mapping):
        return function(**cast("Mapping[str, Any]", args))
    if _is_none(args):
        return function()
    if isinstance(args, Sequence) and not isinstance(args, (str, bytes, bytearray)):
        return function(*cast("Sequence[Any]", args))
    return function(args)
