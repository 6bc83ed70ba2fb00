"""Tool calls of an adapter, from their beginning to their end."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard._control.context import keepers
from otel_loopguard._control.current_call import CurrentCall, make

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from typing_extensions import Self

    from otel_loopguard._control.flag import Flag

_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_OPERATION: Final = "gen_ai.operation.name"
_TOOL: Final = "gen_ai.tool.name"
_CALL_ID: Final = "gen_ai.tool.call.id"
_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
_RESULT: Final = "gen_ai.tool.call.result"
_AGENT: Final = "gen_ai.agent.name"
_OPENINFERENCE: Final = "tool.name"
_LOGFIRE: Final = "Function: {name}"


@dataclass(frozen=True, slots=True)
class OwnSpan:
    """What a span of ours says of a tool call, by the GenAI conventions.

    Attributes:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text; None if they are not known.
        call_id: Id that the model gave the call.
        agent: Name of the agent that makes it.
    """

    tool: str
    args: object = None
    call_id: str | None = None
    agent: str | None = None

    def start(self, tracer: Tracer, context: Context | None, *, content: bool) -> Span:
        """Starts the span."""
        known = {_CALL_ID: self.call_id, _AGENT: self.agent}
        own = {_OPERATION: "execute_tool", _TOOL: self.tool}
        own |= {name: value for name, value in known.items() if value}
        if content and self.args is not None:
            own[_ARGUMENTS] = _text(self.args)
        span = tracer.start_span(
            f"execute_tool {self.tool}", context, kind=SpanKind.INTERNAL, attributes=own
        )
        self.tell(span, None)
        return span

    def tell(self, span: Span, outcome: object) -> None:
        """Tells the guards of this process what the span does not say."""
        span_id = span.get_span_context().span_id
        for keeper in keepers():
            keeper.tell(span_id, self.args, outcome)

    def result(self, span: Span, outcome: object, failed: str | None) -> None:
        """Puts the result on the span, where it carries content, and whether the call failed."""
        if isinstance(span, ReadableSpan) and _ARGUMENTS in (span.attributes or {}):
            span.set_attribute(_RESULT, _text(outcome))
        if failed is not None:
            span.set_attribute(semconv.ERROR_TYPE, "tool_error")
            span.set_status(Status(StatusCode.ERROR))

    @staticmethod
    def end(span: Span, error: BaseException | None) -> None:
        """Ends the span, with the exception that the call ended in, if it did."""
        if error is not None:
            span.set_attribute(semconv.ERROR_TYPE, type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def is_span_of(tool: str, span: Span) -> bool:
    """Whether a span is that of a call of a tool, as instrumentations write it."""
    if not isinstance(span, ReadableSpan) or not span.is_recording():
        return False
    known = span.attributes or {}
    named = known.get("name" if span.name == _LOGFIRE else _TOOL, known.get(_OPENINFERENCE))
    return named == tool if named is not None else span.name in {tool, f"execute_tool {tool}"}


def refuse_on(span: Span) -> None:
    """Says on the span of a call that it was refused."""
    span.set_attribute(semconv.ERROR_TYPE, semconv.ERROR_DENY)
    span.set_status(Status(StatusCode.ERROR, "refused by the guard"))


def captured() -> bool:
    """Whether spans are to carry arguments and results, by the variable of OpenTelemetry."""
    return os.environ.get(_CAPTURE, "").strip().lower() in {"true", "span_only", "span_and_event"}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value, default=_shown, option=orjson.OPT_NON_STR_KEYS).decode()


def _shown(value: Any) -> str:
    return str(value)


_MOST: Final = 1024


class Made:
    """A tool call while it is made; a span of ours is the current one.

    For a framework that tells of begin and end by two callbacks there is `end` in place of `with`.
    """

    def __init__(  # noqa: PLR0913
        self,
        own: OwnSpan,
        span: Span | None,
        flag_now: Callable[[], Flag | None],
        *,
        ours: bool = True,
        passing: tuple[type[BaseException], ...] = (),
        alone: Span | None = None,
    ) -> None:
        self._own = own
        self._alone = alone
        self._passing = passing
        self._span = span
        self._ours = ours
        self._flag_now = flag_now
        self._outcome: object = None
        self._owed = False
        self._current: AbstractContextManager[object] | None = None
        self._before: CurrentCall | None = None

    def __enter__(self) -> Self:
        if self._span is None:
            # Somebody else starts the span inside of the block, and may not write the arguments.
            self._before = make(CurrentCall(self._own.tool, self._own.args))
        if self._span is not None and self._ours:
            self._current = trace.use_span(self._span, end_on_exit=False)
            self._current.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._span is None:
            make(self._before)
        if self._current is not None:
            # The exception is recorded below, once.
            self._current.__exit__(None, None, None)
        self.end(None if isinstance(error, self._passing) else error)

    def result(self, outcome: object, *, failed: str | None = None) -> None:
        """Takes the result."""
        self._outcome = outcome
        self._owed = failed is None and not self._add_part()
        if self._span is not None and self._ours:
            self._own.result(self._span, outcome, failed)
        if self._alone is not None:
            self._own.result(self._alone, outcome, failed)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the call."""
        if self._span is not None:
            said = self._outcome
            if said is None and isinstance(error, Exception):
                # What the call answered; our spans do not say it.
                said = f"{type(error).__name__}: {error}"
            self._own.tell(self._span, said)
            if self._ours:
                self._own.end(self._span, error)
        if self._alone is not None:
            self._own.tell(self._alone, self._outcome)
            self._own.end(self._alone, error)
        if self._owed:
            # The end of the first span may be what makes its session known.
            self._owed = False
            self._add_part()

    def _add_part(self) -> bool:
        flag = self._flag_now()
        if flag is None:
            return False
        flag.add_part(self._outcome)
        return True


class Calls:
    """Calls under way, where a framework tells of begin and end by two callbacks.

    The newest 1024 are kept; one that is put out of it, or begins again, is ended.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Made] = OrderedDict()

    def begin(self, key: Hashable, made: Made) -> None:
        """A call begins."""
        self.end(key)
        self._made[key] = made
        if len(self._made) > _MOST:
            self._made.popitem(last=False)[1].end()

    def take(self, key: Hashable) -> Made | None:
        """The call, which came back: `result` and `end` are the caller's; None if unknown."""
        return self._made.pop(key, None)

    def end(self, key: Hashable, error: BaseException | None = None) -> None:
        """Ends a call that did not come back, if it is known."""
        made = self._made.pop(key, None)
        if made is not None:
            made.end(error)
