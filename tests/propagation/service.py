"""A service over real HTTP, instrumented, in a process of its own; and what calls it.

    python -m tests.propagation.service

Prints its port. What it is asked it answers as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from opentelemetry import trace
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, control
from otel_loopguard._control.context import named_session
from tests.agents import agent, provider_with, tool_call


def look() -> dict[str, Any]:
    """What the control says here."""
    seen = control.current()
    return {"session": named_session(), "action": seen.action.value, "by": seen.by}


def search() -> dict[str, Any]:
    """A sub-agent that asks the same five times, and is stopped by the guard of this process."""
    tracer = trace.get_tracer("service")
    calls = 0
    with agent(tracer):
        with suppress(LoopGuardAbort):
            for _ in range(20):
                control.check()
                tool_call(tracer)
                calls += 1
        return {**look(), "calls": calls}


def work() -> dict[str, Any]:
    """A sub-agent that works until it is stopped from elsewhere, for 20 seconds at most."""
    began = time.monotonic()
    tracer = trace.get_tracer("service")
    with agent(tracer):
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
    trace.set_tracer_provider(provider_with(LoopGuardSpanProcessor(LoopGuard.default())))
    app: Any = OpenTelemetryMiddleware(application)
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        sys.stdin.close()
        server.serve_forever()


if __name__ == "__main__":
    serve()
