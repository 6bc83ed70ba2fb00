"""What the adapters of all frameworks share.

It writes spans on a provider of its own, which nothing exports and whose only processor feeds
`LoopGuard.default()`. So calls, sessions, deadlines and decisions are those of any other span.

For a framework whose own span of a call is open while the function runs, says neither arguments nor
result, and is not open yet where a call can be refused.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, cast

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_loopguard._control.context import flag_at, keepers, named_session, naming
from otel_loopguard._control.gate import flag_refuses, gate_at, objected, spellings
from otel_loopguard._util.clock import off
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger, warn_blind
from otel_loopguard.core.admission import Choice
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.execution.runtime import admit
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.integrations._runs import Answer, Asked, Given
from otel_loopguard.integrations._tool_call import Made, OwnSpan, captured, is_span_of, refuse_on
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.trace import TracerProvider as SdkTracerProvider

    from otel_loopguard._control.flag import Control, Flag
    from otel_loopguard.core import Admission


def needed(module: str, extra: str) -> Any:
    """Imports a module of the framework."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = f"otel_loopguard.integrations.{extra.replace('-', '_')}"
        msg = f"{name} needs {module!r}: pip install 'otel-loopguard[{extra}]' ({error})"
        raise ModuleNotFoundError(msg, name=error.name, path=error.path) from error


def instrumented_by(*instrumentors: str) -> Callable[[], bool]:
    """Says whether any of some instrumentors is at work; imports nothing."""
    return lambda: any(_at_work(place) for place in instrumentors)


def either(*answers: Callable[[], bool]) -> Callable[[], bool]:
    """Says whether any of several says yes."""
    return lambda: any(answer() for answer in answers)


def _at_work(place: str) -> bool:
    module, _, name = place.partition(":")
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and bool(found().is_instrumented_by_opentelemetry)


@contextmanager
def let_through(framework: type[Exception]) -> Generator[None, None, None]:
    """Makes a stop that is raised inside one of a framework's own exceptions too.

    For frameworks that wrap what a hook raises, except for exceptions of their own.
    """
    try:
        yield
    except LoopGuardStop as stop:
        both = _both(type(stop), framework)
        raise both(str(stop), stop.session, stop.decision, stop.parts) from None


@cache
def _both(kind: type[LoopGuardStop], framework: type[Exception]) -> type[LoopGuardStop]:
    if issubclass(kind, framework):
        return kind
    return type(kind.__name__, (kind, framework), {"__module__": kind.__module__})


_UNLIMITED: Final = SpanLimits(
    max_attribute_length=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET
)


class _Feeder(LoopGuardSpanProcessor):
    """Feeds the default guard, until a processor of the user's feeds any."""

    attaches = False

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if alone() or context is None:
            super().on_end(span)
        else:
            # A processor came while the call was made, and may count it.
            self.guard.let_go(context.span_id)


class _Provider:
    """The provider of this process, made on first use."""

    def __init__(self) -> None:
        self._made: TracerProvider | None = None
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        self._lock = new_lock()

    def get(self) -> TracerProvider:
        with self._lock:
            if self._made is None:
                self._made = TracerProvider(
                    ALWAYS_ON, Resource.get_empty(), shutdown_on_exit=False, span_limits=_UNLIMITED
                )
                self._made.add_span_processor(_Feeder(LoopGuard.default()))
            return self._made


_provider = _Provider()


def alone() -> bool:
    """Whether no span processor feeds a guard, and none is there that was switched off."""
    return not (LoopGuard.all_attached() or LoopGuard.any_switched_off() or off())


def tracer_alone(framework: str) -> Tracer | None:
    """The tracer that shows the default guard what an adapter knows; None where it is not alone."""
    if not alone():
        return None
    if _disabled():
        return None
    return _provider.get().get_tracer(f"otel_loopguard.integrations.{framework}", __version__)


def warn_if_off(framework: str) -> None:
    """Warns once where an adapter is there and no guard will ever see what it knows."""
    if LoopGuard.all_attached():
        return
    if LoopGuard.any_switched_off():
        _warn_off(framework, "enabled is False")
    elif alone():
        _disabled(framework)


def _disabled(framework: str = "") -> bool:
    """Whether OpenTelemetry or the default guard is switched off, by the environment."""
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        _warn_off(framework, f"{OTEL_SDK_DISABLED} is true")
        return True
    if not LoopGuard.default().settings.enabled:
        _warn_off(framework, "LOOPGUARD_ENABLED is false")
        return True
    return False


def _warn_off(framework: str, why: str) -> None:
    warn_blind(
        "adapter-off",
        "the adapter of %s does nothing, because %s: no call is seen and no run is stopped",
        framework or "a framework",
        why,
    )


_MOST: Final = 1024
_NEAR: Final = 0.8
_LEAST: Final = 5
"""A limit below this is no net for runs that go on and on, but a way to work."""


class Limit(NamedTuple):
    """How much of a framework's own limit a run has used.

    Attributes:
        name: What the framework calls it.
        used: Units used, the one that begins among them.
        most: Units that there are.
    """

    name: str
    used: int
    most: int


class Limits:
    """Says once for each run that four fifths of a limit are used. Thread-safe."""

    def __init__(self) -> None:
        self._told: OrderedDict[Hashable, int] = OrderedDict()
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def near(self, place: Hashable, limit: Limit | None) -> str | None:
        """What to tell the model of a run; None if there is nothing to tell."""
        if limit is None or limit.most < _LEAST:
            return None
        with self._lock:
            told = self._told.get(place)
            if told is not None and limit.used < told:
                # The next run of the conversation.
                del self._told[place]
                told = None
            if told is not None or limit.used < _NEAR * limit.most:
                return None
            self._told[place] = limit.used
            if len(self._told) > _MOST:
                self._told.popitem(last=False)
        said = f"{limit.used} of {limit.most} are used of {limit.name}, which ends the run"
        logger.warning("%s: session %s", said, place)
        return f"{said}: finish with what you have, or say what is missing."


_PLAIN: Final = (str, int, float, bool, dict, list, tuple, type(None))
_MARK: Final = "loopguard_notes"
_call: ContextVar[GuardedCall | None] = ContextVar("loopguard-call", default=None)


@contextmanager
def noting(call: GuardedCall) -> Generator[None, None, None]:
    """The block in which a framework runs the function of a call."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def noted(
    function: Callable[..., Any], passing: tuple[type[BaseException], ...] = ()
) -> Callable[..., Any]:
    """A function that does the same, and notes its result and its span, inside of `noting`."""
    if hasattr(function, _MARK):
        return function
    if inspect.isasyncgenfunction(function):
        made = _steps(function, passing)
    elif inspect.iscoroutinefunction(function):
        made = _later(function, passing)
    else:
        made = _now(function, passing)
    setattr(made, _MARK, True)
    return made


def _now(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*args: Any, **options: Any) -> Any:
        call = _taken()
        if call is None:
            return function(*args, **options)
        with call.span(passing) as made:
            result = function(*args, **options)
            if not inspect.isawaitable(result):
                made.result(_plain(result))
            return result

    return noting


def _later(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noting(*args: Any, **options: Any) -> Any:
        call = _taken()
        if call is None:
            return await function(*args, **options)
        with call.span(passing) as made:
            result = await function(*args, **options)
            made.result(_plain(result))
            return result

    return noting


def _steps(function: Callable[..., Any], passing: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noting(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        call = _taken()
        result = None
        if call is None:
            async for result in function(*args, **options):
                yield result
            return
        with call.span(passing) as made:
            async for result in function(*args, **options):
                yield result
            made.result(_plain(result))

    return noting


def _taken() -> GuardedCall | None:
    """The call that the function is run for; functions that it calls are not."""
    call = _call.get()
    _call.set(None)
    return call


def _plain(result: object) -> object:
    return cast("object", result) if isinstance(result, _PLAIN) else str(result)


OnChoice = Callable[["Admission"], "str | None"]
"""Does what an execution choice asks for; a text that it gives is told in place of the result."""


class Options(TypedDict, total=False):
    """What every adapter takes; each as of `Guarding`."""

    spans: bool | None
    on_choice: OnChoice | None
    limit_s: float | None
    tracer_provider: SdkTracerProvider | None
    content: bool | None


class Adapter:
    """What the adapter of one framework asks the guard, and the spans that it writes itself."""

    def __init__(  # noqa: PLR0913
        self,
        framework: str,
        *,
        instrumented: Callable[[], bool],
        spans: bool | None = None,
        on_choice: OnChoice | None = None,
        limit_s: float | None = None,
        tracer_provider: SdkTracerProvider | None = None,
        content: bool | None = None,
    ) -> None:
        self.framework = framework
        self._instrumented = instrumented
        self._spans = spans
        self._on_choice = on_choice
        self.refuses = on_choice is None
        self.limit_s = limit_s
        self._provider = tracer_provider
        self._given = Given()
        self._content = captured() if content is None else content
        self._asked = Asked()
        self._limits = Limits()

    def flag(self, session: str | None = None, span: Span | None = None) -> Flag | None:
        """The flag of a run, by the first of these that a guard knows.

        The session that the context names, the key that the framework has, the span that the
        framework has, the span that is current.
        """
        places = (named_session(), session, _trace_of(span), _trace_of(trace.get_current_span()))
        found = next((flag for place in places if (flag := flag_at(place)) is not None), None)
        if found is None or named_session() is not None:
            return found
        # Two runs in one trace, each of which has a key of its own.
        return None if self._given.others(found.control.session, session) else found

    def begin(self, session: str | None, span: Span | None = None) -> None:
        """A run begins: a user's turn. What the policy stopped in the run before it may go on."""
        tracer_alone(self.framework)
        warn_if_off(self.framework)
        found = (span or trace.get_current_span()).get_span_context()
        # Where nothing is traced the run is a span that nobody sees.
        span_id = found.span_id if found.is_valid else uuid.uuid4().int >> 64
        key = named_session() or session
        for keeper in keepers():
            keeper.next_run(key, found.trace_id, span_id)

    def before_model(
        self,
        session: str | None = None,
        span: Span | None = None,
        *,
        limit: Limit | None = None,
    ) -> str | None:
        """Before a call of the model: waits while the session is paused."""
        flag = self.flag(session, span)
        if flag is not None:
            gate_at(flag, self.limit_s, block=True)
        return self._told(flag, _place(session, span), limit)

    async def before_model_async(
        self,
        session: str | None = None,
        span: Span | None = None,
        *,
        limit: Limit | None = None,
    ) -> str | None:
        """As `before_model`, without blocking the event loop."""
        flag = self.flag(session, span)
        if flag is not None:
            await gate_at(flag, self.limit_s)
        return self._told(flag, _place(session, span), limit)

    def after_model(
        self,
        answer: Answer,
        session: str | None = None,
        span: Span | None = None,
        *,
        timed: bool = True,
    ) -> None:
        """After a call of the model: where no processor feeds a guard, the default one is told."""
        began = self._asked.end(_place(session, span))
        tracer = tracer_alone(self.framework)
        if tracer is not None:
            self._named_after(session, span)
            answer.write(tracer, _context(session, span), began if timed else None)

    def handed_off(
        self,
        target: str,
        source: str | None,
        said: object = None,
        *,
        session: str | None = None,
    ) -> None:
        """An agent handed the work to another, in a way that is no call of a tool.

        On the trace it is the call of a tool `transfer_to_<agent>`, where nothing else writes it.
        """
        args = {} if said is None else {"message": said}
        with self.call(f"transfer_to_{target}", args, session=session, agent=source).span():
            pass

    def call(  # noqa: PLR0913
        self,
        tool: str,
        args: object = None,
        *,
        call_id: str | None = None,
        session: str | None = None,
        span: Span | None = None,
        agent: str | None = None,
    ) -> GuardedCall:
        """A tool call that is about to be made."""
        return GuardedCall(self, OwnSpan(tool, args, call_id, agent), session, span)

    def open_span(self, own: OwnSpan, session: str | None, above: Span | None) -> Span:
        """Starts a span of a tool call."""
        tracer = trace.get_tracer(
            f"otel_loopguard.integrations.{self.framework}", __version__, self._provider
        )
        self._named_after(session, above)
        span = own.start(tracer, _context(session, above), content=self._content)
        if not alone():
            self._warn_if_unseen(span)
        return span

    def open_alone(self, own: OwnSpan, session: str | None, above: Span | None) -> Span | None:
        """Starts the span of a tool call that only the default guard sees."""
        tracer = tracer_alone(self.framework)
        if tracer is None:
            return None
        self._named_after(session, above)
        return own.start(tracer, _context(session, above), content=False)

    def writes(self, tool: str, span: Span | None) -> bool:
        """Whether the adapter writes the span of a call itself."""
        if self._spans is not None:
            return self._spans
        return not is_span_of(tool, span or trace.get_current_span()) and not self._instrumented()

    def chosen(self, tool: str, args: object, flag: Flag | None) -> str | None:
        """What is told in place of a call that is not to be made now; None to make it (A4)."""
        if self._on_choice is None:
            return None
        admission = admit(tool, args, session=None if flag is None else flag.control.session)
        return None if admission.choice is Choice.EXECUTE_SYNC else self._on_choice(admission)

    def _told(self, flag: Flag | None, place: str | int | None, limit: Limit | None) -> str | None:
        """What the model is told; the call of it begins."""
        self._asked.begin(place)
        said = (None if flag is None else flag.take_hint(), self._limits.near(place, limit))
        return "\n".join(text for text in said if text is not None) or None

    def _named_after(self, session: str | None, above: Span | None) -> None:
        """Remembers the key that a span of ours without one above is named after."""
        if above is None and session is not None and named_session() is None:
            self._given.add(session)

    def _warn_if_unseen(self, span: Span) -> None:
        span_id = span.get_span_context().span_id
        guards = LoopGuard.all_attached()
        if guards and not any(guard.follows(span_id) for guard in guards):
            warn_blind(
                "adapter-unseen",
                "the adapter of %s writes spans that no LoopGuardSpanProcessor sees: they go to "
                "another tracer provider, or are not sampled; give the adapter the provider that "
                "has the processor (tracer_provider=...), or sample with LoopGuardSampler",
                self.framework,
            )


class GuardedCall:
    """One tool call: `refusal()` before it, `with call.span() as made:` around it."""

    def __init__(
        self, guarding: Adapter, own: OwnSpan, session: str | None, above: Span | None
    ) -> None:
        self._guarding = guarding
        self._own = own
        self._session = session
        self._above = above
        self._flag = guarding.flag(session, above)

    def refusal(self) -> str | None:
        """Before the call: waits while the session is paused, and asks whether it may be made."""
        if self._flag is not None:
            gate_at(self._flag, self._guarding.limit_s, block=True)
        return self._refused()

    async def refusal_async(self) -> str | None:
        """As `refusal`, without blocking the event loop."""
        if self._flag is not None:
            await gate_at(self._flag, self._guarding.limit_s)
        return self._refused()

    def span(self, passing: tuple[type[BaseException], ...] = ()) -> Made:
        """The block in which the call is made; `result` on what it gives takes the result."""
        alone = self._guarding.open_alone(self._own, self._session, self._above)
        if self._guarding.writes(self._own.tool, self._above):
            span = self._guarding.open_span(self._own, self._session, self._above)
            return Made(self._own, span, self._flag_now, passing=passing, alone=alone)
        there = self._above or trace.get_current_span()
        known = there if is_span_of(self._own.tool, there) else None
        return Made(self._own, known, self._flag_now, ours=False, passing=passing, alone=alone)

    def _flag_now(self) -> Flag | None:
        """The flag; the first call of a session makes it."""
        return self._flag or self._guarding.flag(self._session, self._above)

    def _refused(self) -> str | None:
        flag = self._flag
        control = self._denied(flag)
        if control is None:
            return self._guarding.chosen(self._own.tool, self._own.args, flag)
        said = control.hint or f"refused: {control.reason}"
        self._leave_failed(said)
        return said

    def _denied(self, flag: Flag | None) -> Control | None:
        for args in spellings(self._own.args):
            control = flag_refuses(flag, self._own.tool, args)
            if control is not None:
                # The span of the refusal has to be one of the same call.
                self._own = replace(self._own, args=args)
                return control
        # Where the application chooses (A4), it hears of breakers and checks by `on_choice`.
        refuses = self._guarding.refuses
        return objected(flag, self._own.tool, self._own.args) if refuses else None

    def _leave_failed(self, said: str) -> None:
        """A refusal is a failed call: on the span that is there, or on one of our own."""
        alone = self._guarding.open_alone(self._own, self._session, self._above)
        if alone is not None:
            refuse_on(alone)
            alone.end()
        current = self._above or trace.get_current_span()
        if is_span_of(self._own.tool, current):
            # What the framework writes as its result, if it writes results.
            self._own.tell(current, said)
            refuse_on(current)
            return
        span = self._guarding.open_span(self._own, self._session, self._above)
        self._own.tell(span, None)
        refuse_on(span)
        span.end()


def _place(session: str | None, span: Span | None) -> str | int | None:
    """What a model call is told by, from its begin to its end."""
    return named_session() or session or _trace_of(span) or _trace_of(trace.get_current_span())


def _trace_of(span: Span | None) -> int | None:
    context = None if span is None else span.get_span_context()
    return context.trace_id if context is not None and context.is_valid else None


def _context(session: str | None, above: Span | None) -> Context | None:
    context = None if above is None else trace.set_span_in_context(above)
    # Below a span of the run the session is that span's.
    key = named_session() or (session if above is None else None)
    return context if key is None else naming(key, context)
