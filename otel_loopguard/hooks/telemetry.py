"""The calls of coding agents as spans, if the environment names an endpoint."""

from __future__ import annotations

import os
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.environment_variables import OTEL_EXPORTER_OTLP_PROTOCOL
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from otel_loopguard import semconv
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.spans import coding_tools
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.engine import Annotation, Step
    from otel_loopguard.hooks.agents import HookEvent

_SERVICE: Final = "otel-loopguard-hooks"
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES: Final = ("true", "span_only", "span_and_event")


class CallSpans:
    """Writes an `execute_tool` span for each call, and sends it in the background.

    Each is a trace of its own: an agent does not tell its hooks where its spans are. The id of the
    session (`gen_ai.conversation.id`) and of the call join them with the agent's own telemetry.
    Arguments and results are on them only where the variable
    `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for it.

    Raises:
        LoopGuardSettingsError: The extra `otlp` is missing.

    Attributes:
        logs: Where log events go.
    """

    def __init__(self) -> None:
        spans, logs = _exporters()
        service = os.environ.get("OTEL_SERVICE_NAME") or _SERVICE
        resource = Resource.create({SERVICE_NAME: service})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(spans))
        self.logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self.logs.add_log_record_processor(BatchLogRecordProcessor(logs))
        self._tracer = self._provider.get_tracer("otel_loopguard.hooks", __version__)
        self._content = os.environ.get(_CAPTURE, "").strip().lower() in _CAPTURES

    def start(self, event: HookEvent, step: Step) -> Span:
        """Starts the span of a call, whose ids the step gets."""
        known = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": step.name,
            "gen_ai.tool.call.id": step.call_id,
            "gen_ai.conversation.id": event.session,
            "gen_ai.agent.name": event.agent,
            "gen_ai.agent.id": None if step.agent == coding_tools.MAIN else step.agent,
        }
        if self._content:
            known["gen_ai.tool.call.arguments"] = _text(step.args)
            known["gen_ai.tool.call.result"] = _text(step.outcome)
        span = self._tracer.start_span(
            f"execute_tool {step.name}",
            kind=SpanKind.INTERNAL,
            attributes={name: value for name, value in known.items() if value is not None},
            start_time=step.start or None,
        )
        context = span.get_span_context()
        step.trace_id, step.span_id = context.trace_id, context.span_id
        return span

    @staticmethod
    def end(span: Span, step: Step, decided: Annotation | None) -> None:
        """Ends the span of a call, with what was decided on it."""
        if step.error:
            span.set_attribute(semconv.ERROR_TYPE, step.error_type or "tool_error")
            span.set_status(Status(StatusCode.ERROR))
        if decided is not None:
            span.set_attributes(decided.added_to(getattr(span, "attributes", None) or ()))
            if decided.error is not None:
                span.set_status(Status(StatusCode.ERROR, decided.error))
        span.end(step.end or None)

    def close(self, limit_s: float) -> None:
        """Sends the remaining spans within a limit; a collector that is down would take ten s."""
        until = time.monotonic() + limit_s
        ends = (self._provider.shutdown, self.logs.shutdown)
        closing = [threading.Thread(target=end, daemon=True) for end in ends]
        for one in closing:
            one.start()
        for one in closing:
            one.join(max(until - time.monotonic(), 0))


def _exporters() -> tuple[Any, Any]:
    """The exporters of the protocol that the environment names."""
    form = "grpc" if os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL, "").strip() == "grpc" else "http"
    try:
        spans, logs = (
            import_module(f"opentelemetry.exporter.otlp.proto.{form}.{name}_exporter")
            for name in ("trace", "_log")
        )
    except ModuleNotFoundError as error:
        msg = f"OTEL_EXPORTER_OTLP_ENDPOINT needs: pip install 'otel-loopguard[otlp]' ({error})"
        raise LoopGuardSettingsError(msg) from None
    return spans.OTLPSpanExporter(), logs.OTLPLogExporter()


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
