"""Draws the pictures of README.md and docs/operations.md: `make pictures`.

The decision is a trace that went through a real Collector into a real Jaeger; what Jaeger's query
API answers is kept beside the picture, and the picture is drawn from it. The dashboards show what a
real Prometheus answers about the metrics of a real guard, in an hour that is played in seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from stack.ports import Ports
from stack.stack import Stack

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    control,
    session,
)
from tests.operations import boards
from tests.operations.drawing.panels import Prometheus as Source
from tests.operations.drawing.panels import drawn
from tests.operations.drawing.waterfall import waterfall
from tests.operations.hour import STEP_S, Shop
from tests.operations.programs import ROOT
from tests.operations.servers import Prometheus
from tests.stores.servers import wait_for

FOLDER: Final = ROOT / "docs/pictures"
DECISION: Final = FOLDER / "decision.json"
_NOTE: Final = (
    "Drawn by tests/operations/pictures.py from what Jaeger's query API answers; "
    "it is not Jaeger's own user interface."
)
_BOARD: Final = (
    "Drawn by tests/operations/pictures.py from the dashboard's JSON and what a real Prometheus "
    "answers; not by Grafana. The hour is played in seconds."
)
_SPANS: Final = 11
_CALL: Final = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"query": "refund policy for order 4711"}',
}
_WITHOUT: Final = {"operators": "", "health": "Collector"}


def decision() -> str:
    """The picture of the decision that is kept."""
    return waterfall(json.loads(DECISION.read_text(encoding="utf-8")), _NOTE)


def record() -> None:
    """Sends an agent that is stopped through Collector and Jaeger, and keeps the answer."""
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), Ports.free()) as stack:
        stack.jaeger()
        stack.gateway()
        trace = _looping(f"127.0.0.1:{stack.ports.gateway_grpc}")
        url = f"http://127.0.0.1:{stack.ports.jaeger_query}/api/traces/{trace:032x}"
        answers: list[dict[str, Any]] = []
        wait_for(lambda: answers.append(_get(url)) or _complete(answers[-1]), 60)
    text = json.dumps(answers[-1], indent=1, sort_keys=True, ensure_ascii=False)
    DECISION.write_text(f"{text}\n", encoding="utf-8")


def _get(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except OSError:  # 404 until the first span is there
        return {"data": []}


def _complete(answer: dict[str, Any]) -> bool:
    return bool(answer["data"]) and len(answer["data"][0]["spans"]) == _SPANS


def _watched(endpoint: str) -> TracerProvider:
    guard = LoopGuard()
    provider = TracerProvider(resource=Resource.create({"service.name": "support-agent"}))
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    provider.add_span_processor(SimpleSpanProcessor(LoopGuardSpanExporter(exporter, guard)))
    return provider


def _looping(endpoint: str) -> int:
    """An agent that asks for the same again and again; the id of its trace."""
    provider = _watched(endpoint)
    tracer = provider.get_tracer("support.agent")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted"}
    whole = tracer.start_as_current_span("invoke_agent support", attributes=run)
    with session("run-42"), whole as top:
        try:
            for _ in range(20):
                control.check()
                with tracer.start_as_current_span("chat scripted", attributes=asked):
                    time.sleep(0.12)
                with tracer.start_as_current_span("execute_tool search", attributes=_CALL) as span:
                    time.sleep(0.05)
                    span.set_attribute("gen_ai.tool.call.result", "No results.")
        except LoopGuardAbort:
            pass
    provider.shutdown()
    return top.get_span_context().trace_id


def dashboards() -> dict[str, str]:
    """Both dashboards after an hour of a shop, by name."""
    with tempfile.TemporaryDirectory() as folder:
        now = time.time()
        server = Prometheus(Path(folder) / "prometheus", Shop(Path(folder) / "redis", now).play())
        try:
            server.start()
            return shown(server, now - STEP_S)
        finally:
            server.stop()


def shown(server: Prometheus, end: float) -> dict[str, str]:
    """Both dashboards with what a server knows of the hour that ends then."""
    start, step = end - 3480, 60.0
    source = Source(
        lambda expr: server.query(expr, end)["data"]["result"],
        lambda expr: server.range(expr, start, end, step)["data"]["result"],
        start, end, step,
    )  # fmt: skip
    return {
        name: drawn(boards.board(name), source, _BOARD, without)
        for name, without in _WITHOUT.items()
    }


def main() -> None:
    """Draws what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("record", "decision", "dashboards"))
    what = parser.parse_args().what
    logging.disable(logging.CRITICAL)
    FOLDER.mkdir(exist_ok=True)
    if what in (None, "record"):
        record()
    if what != "dashboards":
        (FOLDER / "decision.svg").write_text(decision(), encoding="utf-8")
    if what in (None, "dashboards"):
        for name, picture in dashboards().items():
            (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
