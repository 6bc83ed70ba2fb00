"""Makes the pictures of README.md, docs/opentelemetry.md and docs/operations.md: `make pictures`.

The trace of an agent that is stopped goes through a real Collector into a real Jaeger and a real
Phoenix; their own pages are shown by Chromium. The dashboards are drawn from what a real Prometheus
answers about the metrics of a real guard, in an hour that is played in seconds.
"""

import argparse
import logging
import os
import tempfile
import time
from html import escape
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from playwright.sync_api import Browser, expect
from stack import ui
from stack.builds import HERE, MissingError
from stack.ports import Ports, free_ports
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import trace
from stack.web import get

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
)
from tests.browser import browser
from tests.docs.markdown import sections
from tests.operations import boards
from tests.operations.drawing import Source, drawn
from tests.operations.hour import STEP_S, Shop
from tests.operations.programs import ROOT
from tests.operations.servers import Prometheus

FOLDER: Final = ROOT / "docs/pictures"
THEME: Final = ROOT / "docs/theme"
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
_WITHOUT: Final = {"operators": (), "health": ("Collector", "Servers")}


def pages() -> None:
    """Sends an agent that is stopped to Jaeger and Phoenix; takes pictures of their pages.

    Without Jaeger's page its picture stays.
    """
    port, grpc_port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), Ports.free()) as stack:
        jaeger = stack.ports.jaeger_query
        stack.jaeger()
        stack.phoenix(port, grpc_port)
        phoenix = f"http://127.0.0.1:{port}"
        stack.gateway(HERE / "backends" / "otlp.yaml", ALSO_ENDPOINT=phoenix)
        os.environ["PHOENIX_COLLECTOR_ENDPOINT"] = phoenix
        found = f"{_looping(f'127.0.0.1:{stack.ports.gateway_grpc}'):032x}"
        wait_for(lambda: len(trace(jaeger, found)) == _SPANS, "the trace is in Jaeger, whole")
        calls = [span.id for span in trace(jaeger, found) if span.name == "execute_tool search"]
        wait_for(lambda: len(_verdicts(port, calls)) == 3, "the verdicts are in Phoenix", 180)
        with browser() as opened:
            _take_phoenix(opened, f"{phoenix}/redirects/traces/{found}")
            if ui.page() is None:
                print(f"no picture of Jaeger: {ui.WHERE}")
            else:
                _take_jaeger(opened, f"http://127.0.0.1:{jaeger}/trace/{found}")


def _verdicts(port: int, spans: list[str]) -> list[Any]:
    ids = "&".join(f"span_ids={span}" for span in spans)
    found: list[Any] = get(port, f"/v1/projects/default/span_annotations?{ids}")["data"]
    return found


def _take_jaeger(opened: Browser, url: str) -> None:
    """The rows of a trace, and the last call with what was decided about it."""
    page = opened.new_page(viewport={"width": 1000, "height": 1000}, device_scale_factor=1.5)
    page.goto(url)
    rows = page.locator(".span-row .span-name")
    expect(rows).to_have_count(_SPANS)
    rows.last.click()
    page.get_by_text("Warnings").click()
    names = page.locator(".VerticalResizer--dragger").bounding_box()
    assert names is not None
    page.mouse.move(names["x"] + names["width"] / 2, names["y"] + 10)
    page.mouse.down()
    page.mouse.move(330, names["y"] + 10)
    page.mouse.up()
    end = page.locator(".detail-row").bounding_box()
    assert end is not None
    whole = {"x": 0, "y": 0, "width": 1000, "height": end["y"] + end["height"]}
    page.screenshot(path=FOLDER / "jaeger.png", clip=whole)  # type: ignore[arg-type]


def _take_phoenix(opened: Browser, url: str) -> None:
    """The tree of a trace with its verdicts, and the agent with why it was stopped."""
    context = opened.new_context(viewport={"width": 1180, "height": 640}, device_scale_factor=1.5)
    context.add_init_script("localStorage.setItem('arize-phoenix-theme', 'light')")
    page = context.new_page()
    page.goto(url)
    expect(page.get_by_text("execute_tool search")).to_have_count(5)
    page.wait_for_timeout(2000)  # until its rings are drawn
    page.get_by_role("dialog").screenshot(path=FOLDER / "phoenix.png")


def _watched(endpoint: str) -> TracerProvider:
    tuning = {"delivery": {"flush_s": 60}}  # Phoenix takes them once it has the spans
    # One refusal that was not heeded instead of three: a picture has room for so many rows.
    given = Settings(span_events=True, verdicts="phoenix", abort_after=2, tuning=tuning)
    guard = LoopGuard(given)
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
    provider.force_flush()
    provider.shutdown()
    return top.get_span_context().trace_id


def card() -> None:
    """Takes the picture that a link to the site is shown with."""
    logo = (THEME / "logo.svg").read_text(encoding="utf-8")
    (run,) = sections(ROOT / "README.md")["run"].split("```")[1:2]
    page = f"""<body style="margin: 0; padding: 48px 64px; background: #3949ab; color: #fff;
      font: 26px system-ui, 'DejaVu Sans', sans-serif">
    <div style="display: flex; align-items: center; gap: 24px; font-size: 60px; font-weight: 600">
      <div style="width: 96px">{logo}</div>otel-loopguard</div>
    <p>Notices agents that loop, stall or get nowhere, and stops them in time.</p>
    <pre style="background: #1a237e; border-radius: 12px; padding: 20px 28px; font-size: 18px;
      line-height: 1.35">{escape(run.removeprefix("text").strip())}</pre>"""
    with browser() as opened:
        shown = opened.new_page(viewport={"width": 1200, "height": 630})
        shown.set_content(page)
        shown.screenshot(path=THEME / "card.png")


def dashboards() -> dict[str, str]:
    """Both dashboards after an hour of a shop, by name."""
    with tempfile.TemporaryDirectory() as folder:
        now = time.time()
        server = Prometheus(Path(folder) / "prometheus", Shop(Path(folder) / "redis", now).play())
        try:
            server.start()
            return shown(server, now - STEP_S)
        finally:
            server.kill()


def shown(server: Prometheus, end: float) -> dict[str, str]:
    """Both dashboards with what a server knows of the hour that ends then."""
    start, step = end - 3480, 60.0
    source = Source(
        lambda expr: server.query(expr, end)["data"]["result"],
        lambda expr: server.range(expr, start, end, step)["data"]["result"],
        start, end, step,
    )  # fmt: skip
    return {name: drawn(boards.board(name), source, _BOARD, row) for name, row in _WITHOUT.items()}


def main() -> None:
    """Makes what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("pages", "dashboards", "card"))
    what = parser.parse_args().what
    logging.disable(logging.CRITICAL)
    FOLDER.mkdir(exist_ok=True)
    if what in {None, "card"}:
        card()
    if what in {None, "pages"}:
        try:
            pages()
        except MissingError as error:
            print(f"no pictures of Jaeger and Phoenix: {error}")
    if what in {None, "dashboards"}:
        for name, picture in dashboards().items():
            (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
