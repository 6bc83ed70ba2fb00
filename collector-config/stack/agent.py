"""A small agent with a model that does not listen, watched by the guard, sending OTLP.

`python -m stack.agent loop` repeats one call until it is stopped; `hang` has a tool that hangs;
`many` runs one looping session after the other. Every decision is written to stdout as a line of
JSON as soon as it is made. Where it sends to is said by OpenTelemetry's own variables.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from opentelemetry._logs import set_logger_provider
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode

from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_TURNS = 12


class Telemetry:
    """Everything that leaves the process, by OTLP over gRPC or HTTP.

    Args:
        service: `service.name`.
        protocol: `grpc` or `http`.
        **settings: Settings of the guard.

    Attributes:
        tracer: Makes spans that the guard watches.
        provider: Its provider.
    """

    def __init__(self, service: str, protocol: str, **settings: Any) -> None:
        if protocol == "grpc":
            from opentelemetry.exporter.otlp.proto.grpc import (  # noqa: PLC0415
                _log_exporter,
                metric_exporter,
                trace_exporter,
            )
        else:
            from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
                _log_exporter,
                metric_exporter,
                trace_exporter,
            )
        resource = Resource.create({"service.name": service})
        reader = PeriodicExportingMetricReader(metric_exporter.OTLPMetricExporter(), 1000)
        self._meters = MeterProvider([reader], resource)
        set_meter_provider(self._meters)
        self._loggers = LoggerProvider(resource)
        log = BatchLogRecordProcessor(_log_exporter.OTLPLogExporter(), schedule_delay_millis=200)
        self._loggers.add_log_record_processor(log)
        set_logger_provider(self._loggers)
        guard = LoopGuard(Settings(**{"span_events": True, **settings}), on_decision=_tell)
        self.provider = TracerProvider(resource=resource)
        self.provider.add_span_processor(LoopGuardSpanProcessor(guard))
        out = LoopGuardSpanExporter(trace_exporter.OTLPSpanExporter(), guard)
        self.provider.add_span_processor(BatchSpanProcessor(out, schedule_delay_millis=200))
        self.tracer = self.provider.get_tracer("stack.agent")

    def close(self) -> None:
        """Sends what is left, and waits for that."""
        self.provider.shutdown()
        self._loggers.shutdown()
        self._meters.shutdown()


def _tell(found: Any, decision: Any) -> None:
    told = {"session": found.key, "id": decision.id, "action": str(decision.action)}
    told["trace"] = f"{decision.trace_id:032x}"
    print(json.dumps({**told, "at": time.time()}), flush=True)


def _search(tracer: Tracer, *, refused: bool) -> None:
    call = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": '{"query": "weather in Paris"}',
    }
    with tracer.start_as_current_span("execute_tool search", attributes=call) as span:
        if refused:
            span.set_status(Status(StatusCode.ERROR, "refused by the guard"))
        else:
            span.set_attribute("gen_ai.tool.call.result", "No results.")


def _invoke(tracer: Tracer, name: str) -> Any:
    return tracer.start_as_current_span(
        f"invoke_agent {name}",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
    )


def loop(tracer: Tracer, key: str, name: str = "researcher") -> str:
    """Repeats one call until the guard stops it.

    Args:
        tracer: Makes its spans.
        key: Key of the session.
        name: Name of the agent.

    Returns:
        Id of its trace, 32 hex digits.
    """
    with session(key), _invoke(tracer, name) as span:
        trace = f"{span.get_span_context().trace_id:032x}"
        try:
            for _ in range(_TURNS):
                control.check()
                _search(tracer, refused=control.current().action is Action.DENY)
        except LoopGuardAbort:
            pass
    return trace


def hang(tracer: Tracer, key: str, seconds: float) -> None:
    """Calls a tool that hangs for some seconds, or until it is interrupted."""
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "crawl"}
    tool = tracer.start_as_current_span("execute_tool crawl", attributes=call)
    with session(key), _invoke(tracer, "crawler"), tool, suppress(KeyboardInterrupt):
        time.sleep(seconds)


def many(tracer: Tracer, key: str, seconds: float, pause: float) -> None:
    """Runs one looping session after the other, and tells at the end how it went.

    Args:
        tracer: Makes their spans.
        key: Begin of the keys of the sessions.
        seconds: How long.
        pause: Seconds between two.
    """
    until, took = time.monotonic() + seconds, list[float]()
    while time.monotonic() < until:
        begun = time.perf_counter()
        loop(tracer, f"{key}-{len(took)}")
        took.append(time.perf_counter() - begun)
        time.sleep(pause)
    print(json.dumps({"sessions": len(took), "slowest_s": max(took)}), flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m stack.agent", description=__doc__)
    parser.add_argument("what", choices=("loop", "hang", "many"))
    parser.add_argument("--protocol", choices=("grpc", "http"), default="grpc")
    parser.add_argument("--service", default="loopguard-demo")
    parser.add_argument("--seconds", type=float, default=10, help="how long it hangs, or goes on")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two sessions")
    parser.add_argument("--log-level", default="ERROR")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the guard, as JSON")
    given = parser.parse_args()
    logging.basicConfig(level=given.log_level)
    telemetry = Telemetry(given.service, given.protocol, **given.settings)
    key = f"{given.service}-{time.time_ns():x}"
    if given.what == "loop":
        loop(telemetry.tracer, key)
    elif given.what == "hang":
        hang(telemetry.tracer, key, given.seconds)
    else:
        many(telemetry.tracer, key, given.seconds, given.pause)
    telemetry.close()


if __name__ == "__main__":
    main()
