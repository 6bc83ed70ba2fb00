"""The base of all adapters: an `Adapter` asks the guard, a `ToolCall` is one call of a tool.

A framework whose spans say too little gets spans of the adapter's own. Where no span processor
feeds a guard, they go to `LoopGuard.default()` by a provider that exports nothing, so that calls,
sessions, deadlines and decisions are those of any other span.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import OrderedDict
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypedDict

import orjson
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from otel_loopguard import semconv
from otel_loopguard._control.context import (
    CurrentCall,
    live_guards,
    named_session,
    naming,
    session_at,
    set_current_call,
)
from otel_loopguard._control.flag import asks, note_refusal
from otel_loopguard._control.gate import flag_refuses, gate_at, objected, spellings
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import off
from otel_loopguard._util.errors import logger, warn_blind
from otel_loopguard._util.tables import read_table
from otel_loopguard._util.text import check_limit, expected, printable
from otel_loopguard.core import Choice
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.evidence import as_data
from otel_loopguard.execution import admit
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sdk.provider import (
    GuardOnlyProcessor,
    GuardOnlyProvider,
    is_followed,
    sdk_disabled,
)
from otel_loopguard.settings import Settings
from otel_loopguard.spans.steps import PUT_OFF
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider as ApiTracerProvider
    from typing_extensions import Self, Unpack

    from otel_loopguard._control.context import SessionHandle
    from otel_loopguard.core.admission import Admission

_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_OPERATION: Final = "gen_ai.operation.name"
_TOOL: Final = "gen_ai.tool.name"
_AGENT: Final = "gen_ai.agent.name"
_CONVERSATION: Final = "gen_ai.conversation.id"
_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
_INSTRUMENTORS: Final = {row.name: row.lines for row in read_table(__name__, "instrumentors.txt")}
_AS_JSON: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
_hidden: ContextVar[Span | None] = ContextVar("loopguard-hidden-call", default=None)
"""The span of the call around this place that only the default guard sees; it is not current."""
_MAX_ENTRIES: Final = 1024
"""Runs and calls that an adapter remembers: more than a process has under way at once; each takes
less than 1 kB."""
_LIMIT_SHARE: Final = 0.8
"""Share of a framework's limit after which the model is told: with a fifth of the usual 10 to 50
steps it can finish with what there is."""
_MIN_LIMIT: Final = 5
"""A limit below this is a way to work, and not a safety net against endless runs."""


def require(module: str, extra: str) -> Any:
    """Imports a module of a framework; where it is missing the error names the extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = f"otel_loopguard.integrations.{extra.replace('-', '_')}"
        msg = f"{name} needs {module!r}: pip install 'otel-loopguard[{extra}]' ({error})"
        raise ModuleNotFoundError(msg, name=error.name, path=error.path) from None


def is_instrumented(framework: str) -> bool:
    """True if an instrumentor is active that `instrumentors.txt` names; imports nothing."""
    for module, _, name in (place.partition(":") for place in _INSTRUMENTORS.get(framework, ())):
        found = getattr(sys.modules.get(module), name, None)
        if found is not None and found().is_instrumented_by_opentelemetry:
            return True
    return False


@contextmanager
def raising_as(framework: type[Exception]) -> Generator[None, None, None]:
    """Makes a stop raised in the block an exception of the framework, too.

    For frameworks that wrap whatever a hook raises, except their own exceptions.
    """
    try:
        yield
    except LoopGuardStop as stop:
        both = _both(type(stop), framework)
        raise both(str(stop), stop.session, stop.decision, stop.parts, stop.by) from None


@cache
def _both(kind: type[LoopGuardStop], framework: type[Exception]) -> type[LoopGuardStop]:
    if issubclass(kind, framework):
        return kind
    return type(kind.__name__, (kind, framework), {"__module__": kind.__module__})


def has_processor() -> bool:
    """True if a span processor feeds a guard, or there is one that was switched off."""
    return bool(LoopGuard.all_attached() or LoopGuard.any_switched_off() or off())


class _DefaultGuardProcessor(GuardOnlyProcessor):
    """Feeds the default guard, until a processor of the user's feeds any."""

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is None or not has_processor():
            super().on_end(span)
        else:
            # A processor was added while the call ran, and may count it.
            self.guard.let_go(context.span_id)


@cache
def _default_provider() -> GuardOnlyProvider:
    """The provider that only the default guard sees."""
    return GuardOnlyProvider(_DefaultGuardProcessor(LoopGuard.default()))


class Answer(NamedTuple):
    """A model's answer."""

    text: str | None = None  # empty if it wrote nothing, None if that is not known
    model: str | None = None
    agent: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cache_read: int | None = None  # of the input, as `Step` has it
    cache_write: int | None = None

    def with_usage(
        self, usage: Any, names: tuple[str, str] = ("input_tokens", "output_tokens")
    ) -> Answer:
        """The answer with the tokens that an object of the framework counts."""
        counted = (getattr(usage, name, None) for name in names)
        tokens_in, tokens_out = (one if isinstance(one, int) and one else None for one in counted)
        return self._replace(tokens_in=tokens_in, tokens_out=tokens_out)

    def with_cache(self, read: object, write: object = None) -> Answer:
        """The answer with the tokens that came out of a cache, and that were put into one."""
        known = (one if isinstance(one, int) and one else None for one in (read, write))
        cache_read, cache_write = known
        return self._replace(cache_read=cache_read, cache_write=cache_write)


class Limit(NamedTuple):
    """The part of a framework's own limit that a run has used."""

    name: str  # as the framework calls it
    used: int  # the unit that begins is one of them
    most: int


class Options(TypedDict, total=False):
    """The options of every adapter.

    Attributes:
        spans: Whether the adapter writes spans of tool calls; by default where nothing else does.
        on_choice: Does what an execution choice asks for; a text that it returns replaces the
            result. By default calls that a breaker or a check forbids are refused.
        limit_s: Seconds that a paused run waits at most; by default the setting `pause_limit_s`.
        tracer_provider: Where its spans are made; the global one by default.
        content: Whether its spans carry arguments and results; by default what the variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says.
    """

    spans: bool | None
    on_choice: Callable[[Admission], str | None] | None
    limit_s: float | None
    tracer_provider: ApiTracerProvider | None
    content: bool | None


_OPTIONS: Final = tuple(Options.__annotations__)


def check_options(options: Mapping[str, object]) -> None:
    """Refuses what would do nothing, or fail in the middle of a run."""
    for name, value in options.items():
        if name in Settings.fields:
            raise TypeError(
                f"{name} is a setting of the guard, and no option of an adapter: set it by "
                f"LOOPGUARD_{name.upper()}, or by otel_loopguard.setup({name}=...)"
            )
        if name not in _OPTIONS:
            msg = f"there is no option {name!r}: every adapter takes {', '.join(_OPTIONS)}"
            raise TypeError(msg)
        if name in {"spans", "content"} and not isinstance(value, (bool, type(None))):
            raise TypeError(f"{name}: {expected('True, False or None', value)}")
    check_limit(options.get("limit_s"))
    provider = options.get("tracer_provider")
    makes_tracers = hasattr(provider, "get_tracer") and not isinstance(provider, type)
    if provider is not None and not makes_tracers:
        raise TypeError(f"tracer_provider: {expected('a TracerProvider', provider)}")
    chosen = options.get("on_choice")
    if chosen is not None and not callable(chosen):
        raise TypeError(f"on_choice: {expected('a function', chosen)}")


class Adapter:
    """The questions that the adapter of one framework asks, and the spans that it writes itself.

    Args:
        framework: Name of the adapter's module.
        instrumented: Whether an instrumentation writes spans of tool calls that are not the current
            span where the tool is called; by default those of `instrumentors.txt`.
        passing: Exceptions by which the framework postpones a call; such a call has not failed.
        **options: As of `Options`.

    Raises:
        TypeError: There is no such option, or its value is of another type.
    """

    # By identity; the run is kept, so that its id is not given to another. Of all adapters: an
    # agent that is a tool may have one of its own.
    _runs: ClassVar[BoundedDict[int, tuple[object, str]]] = BoundedDict(_MAX_ENTRIES)

    def __init__(
        self,
        framework: str,
        *,
        instrumented: Callable[[], bool] | None = None,
        passing: tuple[type[BaseException], ...] = (),
        **options: Unpack[Options],
    ) -> None:
        check_options(options)
        asks()
        self.limit_s = options.get("limit_s")
        self.on_choice = options.get("on_choice")
        self.passing = passing
        self._framework = framework
        self._scope = f"otel_loopguard.integrations.{framework}"
        self.is_instrumented = instrumented or partial(is_instrumented, framework)
        self.spans = options.get("spans")
        self._provider = options.get("tracer_provider")
        content = options.get("content")
        if content is None:
            asked = os.environ.get(_CAPTURE, "").strip().lower()
            content = asked in {"true", "span_only", "span_and_event"}
        self._content = content
        # Keys that spans were named after, when models were asked, and of what units of limits.
        self._keys: BoundedDict[str, None] = BoundedDict(_MAX_ENTRIES)
        self._asked: BoundedDict[Hashable, int] = BoundedDict(_MAX_ENTRIES)
        self.told: BoundedDict[Hashable, int] = BoundedDict(_MAX_ENTRIES)
        self._calls: OrderedDict[Hashable, ToolCall] = OrderedDict()
        self.tool_call = partial(ToolCall, self)

    def find(self, session: str | None = None, span: Span | None = None) -> SessionHandle | None:
        """The session of a run, by the first of these that a guard knows.

        The session that the context names, the key that the framework has, the span that the
        framework has, the span that is current.
        """
        places = (named_session(), session, _trace_of(span), _trace_of(trace.get_current_span()))
        found = next((one for place in places if (one := session_at(place)) is not None), None)
        if found is None or named_session() is not None:
            return found
        key = found.key
        # Two runs in one trace, each with a key of its own.
        return None if session is not None and key != session and key in self._keys else found

    def begin(self, session: str | None, span: Span | None = None) -> None:
        """A run begins, a turn of the user: what the policy stopped in the last run may go on."""
        self.warn_if_off()
        found = (span or _hidden.get() or trace.get_current_span()).get_span_context()
        # Where nothing is traced the run is a span that nobody sees.
        span_id = found.span_id if found.is_valid else uuid.uuid4().int >> 64
        key = named_session() or session
        for guard in live_guards():
            guard.next_run(key, found.trace_id, span_id)

    def warn_if_off(self) -> None:
        """Warns where the guard was switched off, so that it sees no call."""
        self._default_tracer()
        if LoopGuard.any_switched_off() and not LoopGuard.all_attached():
            warn_blind("adapter_off", self._framework, "enabled is False")

    def start_run_span(
        self, agent: str | None, session: str | None, began: int, above: Span | None = None
    ) -> Span | None:
        """Starts the span of a run, so that its calls are one trace; None where others write it.

        Args:
            agent: Name of the agent.
            session: Key that the framework has for the run.
            began: When it began, nanoseconds since the epoch.
            above: The span of the run around it, if there is one.
        """
        if self.spans is False or self.is_instrumented():
            return None
        tracer = trace.get_tracer(self._scope, __version__, self._provider)
        span = self._started_run(tracer, agent, session, began, above)
        return span if span.get_span_context().is_valid else None

    def start_default_run_span(
        self, agent: str | None, session: str | None, began: int, above: Span | None = None
    ) -> Span | None:
        """Starts the span of a run that only the default guard sees; None where a processor is."""
        tracer = self._default_tracer()
        return None if tracer is None else self._started_run(tracer, agent, session, began, above)

    def _started_run(
        self, tracer: Tracer, agent: str | None, session: str | None, began: int, above: Span | None
    ) -> Span:
        return tracer.start_span(
            f"invoke_agent {agent}" if agent else "invoke_agent",
            self._context(session, above),
            kind=SpanKind.INTERNAL,
            attributes={_OPERATION: "invoke_agent"} | ({_AGENT: agent} if agent else {}),
            start_time=began,
        )

    @contextmanager
    def within(self, span: Span | None, session: str | None) -> Generator[None, None, None]:
        """The block in which a span of ours is the current one, and spans have this session."""
        context = None if session is None else self._context(session, None)
        if span is not None:
            context = trace.set_span_in_context(span, context)
        if context is None:
            yield
            return
        token = otel_context.attach(context)
        try:
            yield
        finally:
            otel_context.detach(token)

    def knows_run(self, run: object) -> bool:
        """True if the key of a run was asked for before."""
        return id(run) in self._runs

    def run_key(self, run: object) -> str:
        """Key of a run without an id, by an object that exists once per run."""
        known = self._runs.get(id(run)) or (run, f"run-{uuid.uuid4().hex}")
        self._runs[id(run)] = known
        return known[1]

    def before_model(
        self, session: str | None = None, span: Span | None = None, *, limit: Limit | None = None
    ) -> str | None:
        """Before a model call: waits while the session is paused; returns the hint, if any."""
        found = self.find(session, span)
        if found is not None:
            gate_at(found.flag, self.limit_s, block=True)
        return self._hint(found, _place(session, span), limit)

    async def before_model_async(
        self, session: str | None = None, span: Span | None = None, *, limit: Limit | None = None
    ) -> str | None:
        """As `before_model`, without blocking the event loop."""
        found = self.find(session, span)
        if found is not None:
            await gate_at(found.flag, self.limit_s)
        return self._hint(found, _place(session, span), limit)

    def after_model(
        self,
        answer: Answer,
        session: str | None = None,
        span: Span | None = None,
        *,
        timed: bool = True,
        run: Span | None = None,
    ) -> None:
        """After a model call: writes its span for the default guard, where no processor is."""
        began = self._asked.pop(_place(session, span), None)
        tracer = self._default_tracer()
        if tracer is None:
            return
        known = {
            _OPERATION: "chat",
            "gen_ai.request.model": answer.model,
            _AGENT: answer.agent,
            "gen_ai.usage.input_tokens": answer.tokens_in,
            "gen_ai.usage.output_tokens": answer.tokens_out,
            "gen_ai.usage.cache_read.input_tokens": answer.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": answer.cache_write,
        }
        attributes = {name: value for name, value in known.items() if value is not None}
        if answer.text is not None:
            # What is no UTF-8 no parser would read.
            said = answer.text.encode("utf-8", "replace").decode()
            parts = [{"type": "text", "content": said}] if said else []
            messages = [{"role": "assistant", "parts": parts}]
            attributes["gen_ai.output.messages"] = orjson.dumps(messages).decode()
        tracer.start_span(
            f"chat {answer.model or 'model'}",
            self._context(session, run or span),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=began if timed else None,
        ).end()

    def handed_off(  # noqa: PLR0913
        self,
        target: str,
        source: str | None,
        message: object = None,
        *,
        session: str | None = None,
        span: Span | None = None,
        run: Span | None = None,
    ) -> None:
        """An agent handed the work to another, in a way that is no call of a tool.

        On the trace it is the call of a tool `transfer_to_<agent>`, where nothing else writes it.
        """
        args = {} if message is None else {"message": message}
        tool = f"transfer_to_{target}"
        with self.tool_call(tool, args, session=session, agent=source, span=span, run=run):
            pass

    def start_call(self, key: Hashable, call: ToolCall) -> None:
        """Starts a call that another callback ends; the newest 1024 are kept, others are ended."""
        self.end_call(key)
        self._calls[key] = call.start()
        if len(self._calls) > _MAX_ENTRIES:
            self._calls.popitem(last=False)[1].end()

    def finish_call(
        self,
        key: Hashable,
        result: object,
        failed: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Ends a call that was started, with its result, if it is known."""
        call = self._calls.pop(key, None)
        if call is not None:
            call.set_result(result, failed=failed)
            call.end(error)

    def end_call(self, key: Hashable, error: BaseException | None = None) -> None:
        """Ends a call that was started and did not come back, if it is known."""
        call = self._calls.pop(key, None)
        if call is not None:
            call.end(error)

    def put_off_call(self, key: Hashable, exception: str) -> None:
        """Ends a call that was started and waits for somebody's answer, if it is known."""
        call = self._calls.pop(key, None)
        if call is not None:
            call.put_off(exception)

    def start_span(self, call: ToolCall) -> Span:
        """Starts a span of a tool call where the user's spans go."""
        tracer = trace.get_tracer(self._scope, __version__, self._provider)
        span = self._started(call, tracer, call.parent, content=self._content)
        seen = isinstance(self._provider, GuardOnlyProvider) or is_followed(span)
        if LoopGuard.all_attached() and not seen and not self._warns_of_no_sdk():
            warn_blind("adapter_unseen", self._framework)
        return span

    def start_default_span(self, call: ToolCall) -> Span | None:
        """Starts the span of a tool call that only the default guard sees."""
        tracer = self._default_tracer()
        above = call.run or call.parent
        return None if tracer is None else self._started(call, tracer, above, content=False)

    def writes_span(self, call: ToolCall) -> bool:
        """True if the adapter writes the span of a call itself."""
        if self.spans is not None:
            return self.spans
        current = call.parent or trace.get_current_span()
        return not call.is_span(current) and not self.is_instrumented()

    def _started(
        self, call: ToolCall, tracer: Tracer, above: Span | None, *, content: bool
    ) -> Span:
        known = {"gen_ai.tool.call.id": call.call_id, _AGENT: call.agent}
        attributes = {_OPERATION: "execute_tool", _TOOL: call.tool}
        attributes |= {name: value for name, value in known.items() if value}
        if content and call.args is not None:
            attributes[_ARGUMENTS] = _text(call.args)
        span = tracer.start_span(
            # A model's half of a character in it fails a whole batch of an exporter.
            printable(f"execute_tool {call.tool}"),
            self._context(call.session, above),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=call.began,
        )
        tell_content(span, call.told, None)
        return span

    def _default_tracer(self) -> Tracer | None:
        """The tracer that only the default guard sees; None where a processor is, or it is off."""
        if has_processor() or isinstance(self._provider, GuardOnlyProvider):
            return None
        if self._warns_of_no_sdk():
            return None
        if not LoopGuard.default().settings.enabled:
            warn_blind("adapter_off", self._framework, "LOOPGUARD_ENABLED is false")
            return None
        return _default_provider().get_tracer(self._scope, __version__)

    def _warns_of_no_sdk(self) -> bool:
        """Warns where the SDK makes no spans, so that no guard can see a call."""
        if off := sdk_disabled():
            warn_blind("adapter_off", self._framework, f"{OTEL_SDK_DISABLED} is true")
        return off

    def _hint(
        self, found: SessionHandle | None, place: Hashable, limit: Limit | None
    ) -> str | None:
        """The hint for the model, whose call begins now."""
        self._asked[place] = time.time_ns()
        hints = (None if found is None else found.flag.take_hint(), self._limit_hint(place, limit))
        return "\n".join(text for text in hints if text is not None) or None

    def _limit_hint(self, place: Hashable, limit: Limit | None) -> str | None:
        """Says once for each run that four fifths of a framework's limit are used."""
        if limit is None or limit.most < _MIN_LIMIT:
            return None
        told = self.told.get(place)
        if told is not None and limit.used < told:
            # The next run of the conversation.
            self.told.pop(place, None)
            told = None
        if told is not None or limit.used < _LIMIT_SHARE * limit.most:
            return None
        self.told[place] = limit.used
        near = f"{limit.name}, which ends the run at {limit.most}, is at {limit.used}"
        logger.warning("%s: session %s", near, place)
        return f"{near}: finish with what you have, or say what is missing."

    def _context(self, session: str | None, parent: Span | None) -> Context | None:
        """Where a span of ours starts; named after the framework's key where no parent tells it."""
        key = named_session()
        if key is None and session is not None and (parent is None or not has_processor()):
            # Below a span that a guard sees the session is that span's.
            self._keys[session] = None
            key = session
        context = None if parent is None else trace.set_span_in_context(parent)
        return context if key is None else naming(key, context)


class ToolCall:
    """One tool call: `refusal()` before it, `with call:` around it, `set_result` inside.

    For a framework that calls one hook before and another one after a call there are
    `Adapter.start_call` and `finish_call` in place of the block.

    Args:
        adapter: The adapter.
        tool: Name of the tool.
        args: Its arguments; None if they are not known.
        call_id: Id that the model gave the call.
        session: Key that the framework has for the run.
        span: The span above, where the framework has one that is not the current one.
        agent: Name of the agent that makes it.
        run: The span of its run that only the default guard sees, if there is one.
    """

    def __init__(  # noqa: PLR0913
        self,
        adapter: Adapter,
        tool: str,
        args: object = None,
        *,
        call_id: str | None = None,
        session: str | None = None,
        span: Span | None = None,
        agent: str | None = None,
        run: Span | None = None,
    ) -> None:
        self.tool = tool
        self.args = args
        # Now: what the tool does may change them.
        self.told = as_data(args)
        self.call_id = call_id
        self.agent = agent
        self.session = session
        self.parent = span
        self.run = run
        self._adapter = adapter
        self._found = adapter.find(session, span)
        # The span of the call, if there is one, and the one that only the default guard sees.
        self._span: Span | None = None
        self._default_span: Span | None = None
        self._own = False
        self._result: object = None
        self._outcome: object = None
        self._part_owed = False
        # When a refused call was asked for; None for one that runs, whose span begins with it.
        self.began: int | None = None
        self._block: AbstractContextManager[object] | None = None
        self._outer: CurrentCall | None = None
        self._above: Span | None = None

    @property
    def spans(self) -> tuple[Span | None, Span | None]:
        """Its span, if there is one, and the one that only the default guard sees."""
        return self._span, self._default_span

    def refusal(self) -> str | None:
        """Before the call: waits while the session is paused; returns the text of a refusal."""
        began = time.time_ns()
        if self._found is not None:
            gate_at(self._found.flag, self._adapter.limit_s, block=True)
        return self._refused(began)

    async def refusal_async(self) -> str | None:
        """As `refusal`, without blocking the event loop."""
        began = time.time_ns()
        if self._found is not None:
            await gate_at(self._found.flag, self._adapter.limit_s)
        return self._refused(began)

    def start(self, *, hidden: bool = False) -> Self:
        """Starts the call, as `with` does, without making its span the current one.

        Args:
            hidden: Whether it is for the default guard alone, as the framework writes its span.
        """
        self._default_span = self._adapter.start_default_span(self)
        self._own = not hidden and self._adapter.writes_span(self)
        if self._own:
            self._span = self._adapter.start_span(self)
        else:
            current = self.parent or trace.get_current_span()
            self._span = current if self.is_span(current) else None
            self._name(self._span)
        return self

    def set_result(self, result: object, *, failed: str | None = None) -> None:
        """Keeps what the tool gave; `failed` is what went wrong where it raised nothing."""
        self._result = result
        # That there is none is an answer, too.
        self._outcome = "null" if result is None else as_data(result)
        self._part_owed = failed is None and not self._add_part()
        for span in (self._span if self._own else None, self._default_span):
            if span is None:
                continue
            if _has_content(span):
                span.set_attribute("gen_ai.tool.call.result", _text(result))
            if failed is not None:
                _fail(span, "tool_error")

    def unmade(self) -> None:
        """Inside of the block: the framework asks no tool, and nothing else has a span of it."""
        unseen = self._span is None and self._default_span is None
        if unseen and self._adapter.spans is not False:
            set_current_call(self._outer)
            self._own, self._span = True, self._adapter.start_span(self)

    def report(self, said: str | None = None, *, failed: bool = True) -> None:
        """Tells of a call that the framework made by itself; by default there is no such tool."""
        with self:
            self.unmade()
            said = f"Unknown tool: {self.tool}" if said is None else said
            self.set_result(said, failed=said if failed else None)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the call, with the exception that it ended in, if it did."""
        for span in (self._span, self._default_span):
            if span is None:
                continue
            outcome = self._outcome
            if outcome is None and isinstance(error, Exception):
                # What the call answered; our spans do not say it, unless they carry content.
                outcome = f"{type(error).__name__}: {_as_text(error)}"
                if self._own and _has_content(span):
                    span.set_attribute("gen_ai.tool.call.result", outcome)
            tell_content(span, self.told, outcome)
            if span is self._default_span or self._own:
                if error is not None:
                    _fail(span, type(error).__qualname__)
                span.end()
        if self._part_owed:
            # The end of the first span may be what makes its session known.
            self._part_owed = False
            self._add_part()

    def is_span(self, span: Span) -> bool:
        """True if a span is that of a call of the tool, as instrumentations write it."""
        if not isinstance(span, ReadableSpan) or not span.is_recording():
            return False
        known = span.attributes or {}
        # The name has a key of its own in logfire's spans, and in those of OpenInference. A step of
        # LlamaIndex has that key, too, under OpenLLMetry: the span of the call is below it.
        logfire = span.name == "Function: {name}"
        named = known.get("name" if logfire else _TOOL)
        if named is None and "traceloop.entity.name" not in known:
            named = known.get("tool.name")
        if named is not None:
            return named == self.tool
        return span.name in {self.tool, f"execute_tool {self.tool}"}

    def __enter__(self) -> Self:
        self.start()
        self._above = _hidden.get()
        _hidden.set(self._default_span)
        if self._span is None:
            # An instrumentation starts its span within the block, perhaps without the arguments.
            self._outer = set_current_call(CurrentCall(self.tool, self.told))
        elif self._own:
            self._block = trace.use_span(self._span, end_on_exit=False)
            self._block.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _hidden.set(self._above)
        if self._span is None:
            set_current_call(self._outer)
        if self._block is not None:
            # The exception is recorded below, once.
            self._block.__exit__(None, None, None)
        if isinstance(error, self._adapter.passing):
            self.put_off(type(error).__qualname__)
        else:
            self.end(error)

    def put_off(self, exception: str) -> None:
        """Ends the call for now; our spans say so by the type of an exception alone."""
        for span in (self._span if self._own else None, self._default_span):
            if span is not None and exception in PUT_OFF:
                span.add_event("exception", {"exception.type": exception})
        self.end()

    def _refused(self, began: int) -> str | None:
        on_choice = self._adapter.on_choice
        refused = None
        # The name is that of the call's span where the adapter writes it, or the default guard's.
        ours = self._adapter.writes_span(self) or not has_processor()
        agent = self.agent if ours else None
        above = self.parent or self.run
        for args in spellings(self.told):
            refused = flag_refuses(self._found, self.tool, args, agent=agent, span=above)
            if refused is not None:
                # The span of the refusal has to be one of the same call.
                self.args = self.told = args
                break
        if refused is None and on_choice is not None:
            # Where the application chooses, it hears of breakers and checks from the admission.
            session = None if self._found is None else self._found.key
            admission = admit(self.tool, self.args, session=session)
            return None if admission.choice is Choice.EXECUTE_SYNC else on_choice(admission)
        refused = refused or objected(self._found, self.tool, self.args, span=above)
        if refused is None:
            return None
        said = refused.hint or f"refused: {refused.reason}"
        note_refusal(None if self._found is None else self._found.flag, said)
        # Whoever made it could not have heard of the refusal.
        self.began = began
        self._leave_failed(said)
        return said

    def _leave_failed(self, said: str) -> None:
        """Records a refusal as a failed call: on the current span of the call, or on our own."""
        hidden = self._adapter.start_default_span(self)
        current = self.parent or trace.get_current_span()
        if self.is_span(current):
            # What the framework writes as its result, if it writes results.
            tell_content(current, self.told, said)
            self._name(current)
            own = None
        else:
            current = own = self._adapter.start_span(self)
        for span in (hidden, current):
            if span is not None:
                _fail(span, semconv.ERROR_DENY, "refused by the guard")
        for span in (hidden, own):
            if span is not None:
                span.end()

    def _name(self, span: Span | None) -> None:
        """Says on the framework's span of the call which conversation it is of, if it does not."""
        if span is not None and self.session is not None and named_session() is None:
            known = span.attributes if isinstance(span, ReadableSpan) else None
            if _CONVERSATION not in (known or {}):
                span.set_attribute(_CONVERSATION, self.session)

    def _add_part(self) -> bool:
        # The first call of a session makes its flag.
        found = self._found or self._adapter.find(self.session, self.parent)
        if found is not None:
            found.flag.add_part(self._result)
        return found is not None


def tell_content(span: Span, args: object, outcome: object) -> None:
    """Passes the guards of this process what the span of a call lacks."""
    span_id = span.get_span_context().span_id
    for guard in live_guards():
        guard.tell(span_id, args, outcome)


def _has_content(span: Span) -> bool:
    return isinstance(span, ReadableSpan) and _ARGUMENTS in (span.attributes or {})


def _fail(span: Span, error_type: str, description: str | None = None) -> None:
    span.set_attribute(semconv.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR, description))


def end_run(span: Span, error: object) -> None:
    """Ends the span of a run; what the guard raised, it has said on the span itself."""
    if isinstance(error, Exception) and not isinstance(error, LoopGuardStop):
        _fail(span, type(error).__qualname__)
    span.end()


def _place(session: str | None, span: Span | None) -> str | int | None:
    """Identifies a model call from its start to its end."""
    return named_session() or session or _trace_of(span) or _trace_of(trace.get_current_span())


def _trace_of(span: Span | None) -> int | None:
    context = None if span is None else span.get_span_context()
    return context.trace_id if context is not None and context.is_valid else None


def _text(value: object) -> str:
    """A value as a span has it: a text, or JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=as_data, option=_AS_JSON).decode()
    except orjson.JSONEncodeError:  # a large number, a lone surrogate, a key of two parts, a circle
        return orjson.dumps(as_data(value)).decode()


def _as_text(value: object) -> str | None:
    """The text of an object of the application; None where it cannot say it."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001  # of the application's own code
        return None
