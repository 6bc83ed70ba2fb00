"""The span of a tool call that an adapter writes itself, where nothing else does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard.control.context import keepers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

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
