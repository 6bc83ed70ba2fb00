"""A Collector that is away, hangs or refuses: the agent is not slowed, and it is said."""

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from stack import certificates
from stack.builds import MissingError
from stack.ports import free_ports
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import total

from tests.e2e.running import Agents, lines_of
from tests.zero_code.interpreter import lacking

pytestmark = pytest.mark.rare

SHORT = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": "2",  # of an export with all its tries; ten seconds by default
    "OTEL_METRIC_EXPORT_TIMEOUT": "2000",
    **{f"OTEL_{kind}_MAX_QUEUE_SIZE": "256" for kind in ("BSP", "BLRP")},
    **{f"OTEL_{kind}_MAX_EXPORT_BATCH_SIZE": "128" for kind in ("BSP", "BLRP")},
}
FAILED = "do not arrive: OTLPSpanExporter"


class Collector(BaseHTTPRequestHandler):
    pause_s = 0.0
    status = 200

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.pause_s)
        self.send_response(self.status)
        self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def answering() -> Iterator[Callable[..., int]]:
    """Starts Collectors that answer so; their port."""
    servers: list[ThreadingHTTPServer] = []

    def start(pause_s: float = 0, status: int = 200, tls: ssl.SSLContext | None = None) -> int:
        handler = type("Handler", (Collector,), {"pause_s": pause_s, "status": status})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def hanging() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


def ran(agents: Agents, port: int, protocol: str) -> tuple[int, float]:
    """An agent that sends much more than its queues hold: sessions it ran, seconds of the worst."""
    words = ("many", "--seconds", "4", "--pause", "0", "--protocol", protocol)
    summary = lines_of(agents(port, *words, **SHORT))[-1]
    return summary["sessions"], summary["slowest_s"]


@pytest.mark.parametrize(
    ("trouble", "protocol"),
    [
        *itertools.product(("away", "hangs"), ("grpc", "http")),
        ("slow", "http"),
        ("throttles", "http"),
    ],
)
def test_the_agent_is_not_slowed(
    trouble: str, protocol: str, agents: Agents, hanging: int, answering: Callable[..., int]
) -> None:
    """No step waits for an exporter, whose shortest wait is two seconds; the run goes on."""
    port = {
        "away": lambda: free_ports(1)[0],
        "hangs": lambda: hanging,
        "slow": lambda: answering(pause_s=1.8),
        "throttles": lambda: answering(status=429),
    }[trouble]()
    sessions, slowest = ran(agents, port, protocol)
    assert sessions > 40
    assert slowest < 1.7


def test_what_is_dropped_is_counted(stack: Stack, agents: Agents) -> None:
    """Spans go nowhere, metrics arrive: they say how many decisions did not."""
    at, words = stack.ports, ("many", "--service", "dropping", "--seconds", "6", "--pause", "0.2")
    lost = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{free_ports(1)[0]}"}
    lines_of(agents(at.gateway_grpc, *words, **SHORT, **lost))
    for name in ("exported", "spans"):
        query = f'loopguard_exporter_{name}_total{{job="dropping", error_type="failure"}}'
        wait_for(lambda query=query: total(at.prometheus, query) > 0, f"{name} is counted")


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    try:
        made = certificates.self_signed(tmp_path)
    except MissingError as error:
        lacking(str(error))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.path, made.key)
    return context


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("wrong", ["endpoint", "path", "certificate"])
def test_one_warning_says_that_spans_do_not_arrive(
    wrong: str, protocol: str, agents: Agents, answering: Any, self_signed: ssl.SSLContext
) -> None:
    """A wrong address, a wrong path, a certificate that is not trusted: one line, with where."""
    endpoint = {
        "endpoint": lambda: f"http://127.0.0.1:{free_ports(1)[0]}",
        "path": lambda: f"http://127.0.0.1:{answering(status=404)}",
        "certificate": lambda: f"https://127.0.0.1:{answering(tls=self_signed)}",
    }[wrong]()
    words = ("many", "--seconds", "3", "--protocol", protocol, "--log-level", "WARNING")
    agent = agents(1, *words, **SHORT, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    _, said = agent.communicate(timeout=120)
    assert agent.returncode == 0, said
    warnings = [line for line in said.splitlines() if FAILED in line]
    assert len(warnings) == 1, said
    assert endpoint.rpartition("/")[2] in warnings[0]
