"""The command line: builds what has to be built, runs the stack, sends a demonstration through.

    python -m stack build [collector] [balancer] [jaeger] [phoenix] [mlflow]
    python -m stack page [DIR]
    python -m stack up
    python -m stack demo

Run it in this folder, or by `make collector`, `make jaeger`, `make stack`, `make demo-stack`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack import demo, ui
from stack.builds import BALANCER, COLLECTOR, JAEGER, MissingError
from stack.environments import MLFLOW, PHOENIX
from stack.ports import Ports
from stack.stack import Pace, Stack, listens
from stack.web import Webhook

if TYPE_CHECKING:
    from stack.programs import Program

_BUILDS = {
    "collector": COLLECTOR,
    "balancer": BALANCER,
    "jaeger": JAEGER,
    "phoenix": PHOENIX,
    "mlflow": MLFLOW,
}
_WHAT = {
    "jaeger": "Jaeger        http://127.0.0.1:{0.jaeger_query}",
    "gateway": "Collector     OTLP: 127.0.0.1:{0.gateway_grpc} (gRPC), "
    "http://127.0.0.1:{0.gateway_http} (HTTP)",
    "prometheus": "Prometheus    http://127.0.0.1:{0.prometheus}",
    "alertmanager": "Alertmanager  http://127.0.0.1:{0.alertmanager}",
    "redis": "Redis         redis://127.0.0.1:{0.redis}/0",
}


def main() -> int:
    """Does what is asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stack")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="builds programs, unless they are there")
    build.add_argument("names", nargs="+", choices=_BUILDS)
    page = commands.add_parser("page", help="keeps Jaeger's page, for the Jaeger that is built")
    page.add_argument("folder", nargs="?", type=Path, help="with its index.html and static/")
    for name, what in (
        ("up", "runs everything until Ctrl-C"),
        ("demo", "runs everything, sends a looping agent through, says where to look"),
    ):
        run = commands.add_parser(name, help=what)
        run.add_argument("--folder", type=Path, help="for all that is written; else a new one")
    given = parser.parse_args()
    try:
        if given.command == "build":
            _build(given.names)
        elif given.command == "page":
            print(f"jaeger-ui: {ui.keep(given.folder)}")
        else:
            _run(given.folder, with_demo=given.command == "demo")
    except (MissingError, OSError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _build(names: list[str]) -> None:
    for name in names:
        begun = time.monotonic()
        path = _BUILDS[name].build()
        print(f"{name}: {path} ({time.monotonic() - begun:.0f} s)", flush=True)


def _run(folder: Path | None, *, with_demo: bool) -> None:
    # As if by Ctrl-C, so that the programs are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as closing:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="loopguard-stack-")
            folder = Path(closing.enter_context(made))
        ports = _usual_ports()
        # The demonstration shows an alert come and go, so it does not wait for minutes.
        stack = closing.enter_context(Stack(folder.resolve(), ports, Pace() if with_demo else None))
        hook = closing.enter_context(Webhook(ports.webhook, _tell))
        with _ended_by_hand():
            for start in (stack.jaeger, stack.gateway, stack.prometheus):
                _say(start(), ports)
            for start in (stack.alertmanager, stack.redis):
                _say(start(), ports)
            print(f"{'Decisions':13} {stack.decisions}\n", flush=True)
            if with_demo:
                demo.show(stack, hook)
            print("Ctrl-C ends it.", flush=True)
            threading.Event().wait()


@contextmanager
def _ended_by_hand() -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("\nending", flush=True)


def _say(program: Program, ports: Ports) -> None:
    print(_WHAT[program.name].format(ports), flush=True)
    if program.name == "jaeger" and not ui.has_page(ports.jaeger_query):
        print(f"{'':13} {ui.WITHOUT}", flush=True)


def _usual_ports() -> Ports:
    """The usual ports; free ones in place of those that something else listens on."""
    usual, free = Ports(), Ports.free()
    taken: dict[str, int] = {
        field.name: getattr(free, field.name)
        for field in fields(Ports)
        if _is_taken(getattr(usual, field.name))
    }
    for name, port in taken.items():
        print(f"port {getattr(usual, name)} is taken: {name} listens on {port}", flush=True)
    return Ports(**{field.name: getattr(usual, field.name) for field in fields(Ports)} | taken)


def _is_taken(port: int) -> bool:
    try:
        return bool(listens(port)())
    except OSError:
        return False


def _tell(alert: dict[str, Any]) -> None:
    name, summary = alert["labels"]["alertname"], alert["annotations"].get("summary", "")
    print(f"alert {alert['status']}: {name}: {summary}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
