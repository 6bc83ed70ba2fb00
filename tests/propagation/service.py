"""A service over real HTTP, instrumented, in a process of its own; and what calls it.

    python -m tests.propagation.service

Prints its port. What it is asked it answers as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from opentelemetry import trace
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, control
from otel_loopguard._control.context import named_session

CALL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"q": "x"}',
}


def look() -> dict[str, Any]:
    """What the control says here."""
    seen = control.current()
    return {"session": named_session(), "action": seen.action.value, "by": seen.by}


def search() -> dict[str, Any]:
    """A sub-agent that asks the same five times, and is stopped by the guard of this process."""
    tracer = trace.get_tracer("service")
    calls = 0
    with tracer.start_as_current_span("invoke_agent b", attributes={"gen_ai.agent.name": "b"}):
        try:
            for _ in range(20):
                control.check()
                with tracer.start_as_current_span("execute_tool search", attributes=CALL) as span:
                    span.set_attribute("gen_ai.tool.call.result", "No results.")
                calls += 1
        except LoopGuardAbort:
            pass
        return {**look(), "calls": calls}


def work() -> dict[str, Any]:
    """A sub-agent that works until it is stopped from elsewhere, for 20 seconds at most."""
    began = time.monotonic()
    tracer = trace.get_tracer("service")
    with tracer.start_as_current_span("execute_tool work", attributes=CALL):
        while time.monotonic() < began + 20:
            try:
                control.check()
            except LoopGuardAbort:
                return {**look(), "stopped_at": time.time()}
            time.sleep(0.005)
    return {**look(), "stopped_at": None}


ANSWERS: dict[str, Callable[[], dict[str, Any]]] = {
    "/look": look, "/search": search, "/work": work,
}  # fmt: skip


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    answer = json.dumps(ANSWERS[environ["PATH_INFO"]]()).encode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [answer]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


def serve() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(LoopGuard.default()))
    trace.set_tracer_provider(provider)
    app: Any = OpenTelemetryMiddleware(application)
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        sys.stdin.close()
        server.serve_forever()


if __name__ == "__main__":
    serve()
