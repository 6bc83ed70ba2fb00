"""A server on a thread of its own, OTLP requests for it, and a next hop that keeps what it gets."""

import asyncio
import gzip
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_loopguard import Settings
from otel_loopguard.server import Server, ServerSettings, Tenants
from otel_loopguard.server.forward import SIGNALS
from otel_loopguard.server.metrics import ServerTelemetry
from tests.zero_code.interpreter import lacking

PROTOBUF = {"content-type": "application/x-protobuf"}
SECOND = 1_000_000_000
BEGIN = time.time_ns() + 24 * 3600 * SECOND
"""After whatever a test asks: a call confirms what was heard before it began."""
CLIENT = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
"""Each request on a connection of its own; the certificates of a client take 20 ms to read."""


@contextmanager
def serving(
    tenants: Tenants | None = None, guard: Settings | None = None,
    telemetry: ServerTelemetry | None = None, **settings: Any,
) -> Generator[Server]:  # fmt: skip
    """A server on free ports, until the block ends."""
    given: dict[str, Any] = {"http": "127.0.0.1:0", "grpc": "", **settings}
    started: list[Server] = []
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        try:
            # One call against the refusal is enough.
            own = guard or Settings(abort_after=2)
            async with Server(ServerSettings(**given), own, tenants, telemetry) as server:
                started.append(server)
                ready.set()
                await asyncio.to_thread(stop.wait)
        finally:
            ready.set()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        ready.wait()
        yield started[0]
    finally:
        stop.set()
        thread.join()


def certified(folder: Path) -> tuple[str, str]:
    """Writes a new certificate for 127.0.0.1, and its key; returns their paths."""
    if shutil.which("openssl") is None:
        lacking("there is no openssl")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1"
    name = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([*command.split(), *name], check=True, capture_output=True)
    return certificate, key


def log_record(event: str, number: int, *attributes: KeyValue, body: str = "") -> bytes:
    """A request with one log record, numbered: an event by its name, or a body."""
    made = ExportLogsServiceRequest()
    record = made.resource_logs.add().scope_logs.add().log_records.add(
        time_unix_nano=BEGIN + number * SECOND, event_name=event, attributes=attributes
    )  # fmt: skip
    if body:
        record.body.string_value = body
    return made.SerializeToString()


def request(*spans: dict[str, Any], scope: str = "test.agent") -> ExportTraceServiceRequest:
    """A request with spans, each given by its fields; `attributes` as a plain map."""
    made = ExportTraceServiceRequest()
    resource = made.resource_spans.add()
    resource.resource.attributes.append(pair("service.name", "agents"))
    group = resource.scope_spans.add()
    group.scope.name = scope
    for fields in spans:
        attributes = fields.pop("attributes", {})
        span = group.spans.add(**fields)
        span.attributes.extend(pair(name, value) for name, value in attributes.items())
    return made


def call(number: int, session: str = "chat-1", **more: Any) -> dict[str, Any]:
    """The span of the same call each time, right behind the one before; in its own trace."""
    start = BEGIN + number * SECOND
    return {
        "trace_id": (number + 1).to_bytes(16, "big"), "span_id": (number + 1).to_bytes(8, "big"),
        "name": "execute_tool search", "kind": 1,
        "start_time_unix_nano": start, "end_time_unix_nano": start + SECOND,
        "attributes": {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
            "gen_ai.conversation.id": session, "gen_ai.tool.call.arguments": '{"q": "x"}',
            "gen_ai.tool.call.result": "nothing was found for this query",
        },
        **more,
    }  # fmt: skip


def asking(tool: str) -> dict[str, Any]:
    """A model's answer that asks for a call."""
    part: dict[str, object] = {"type": "tool_call", "id": "c1", "name": tool, "arguments": {}}
    return call(0, name="chat m", attributes={
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "chat-1",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}]),
    })  # fmt: skip


def post(
    server: Server, *spans: dict[str, Any], body: bytes | None = None, path: str = "traces",
    **headers: str,
) -> httpx.Response:  # fmt: skip
    """Sends spans, or bytes; returns the answer."""
    sent = request(*spans).SerializeToString() if body is None else body
    url = f"{server.url}/v1/{path}"
    return CLIENT.post(url, content=sent, headers={**PROTOBUF, **headers})


@contextmanager
def connected(server: Server, text: str = "") -> Generator[socket.socket]:
    """A connection over which a request was sent as it is written here."""
    host, _, port = server.url.partition("//")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        yield line


def send(server: Server, *numbers: int, session: str = "chat-1", **headers: str) -> httpx.Response:
    """Sends the same call for each number; returns the answer."""
    return post(server, *(call(number, session) for number in numbers), **headers)


def control(server: Server, session: str = "chat-1", **query: str) -> dict[str, Any]:
    """The flag of a session, as its runtime hears it."""
    url = f"{server.url}/v1/sessions/{quote(session, safe='')}/control"
    answer = CLIENT.get(url, params=query)
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def sessions(server: Server, **headers: str) -> list[dict[str, Any]]:
    """The sessions of a server, as people see them listed."""
    return CLIENT.get(f"{server.url}/v1/sessions", headers=headers).json()["sessions"]


def pair(name: str, value: str | int) -> KeyValue:
    """An attribute."""
    held = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
    return KeyValue(key=name, value=held)


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span or log record, as a plain map."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def bearer(token: str) -> dict[str, str]:
    """The header of a token; none for none."""
    return {"authorization": f"Bearer {token}"} if token else {}


@contextmanager
def exporter(server: Server, signal: str = "traces") -> Generator[Callable[..., bytes]]:
    """Sends a server the bytes of requests over gRPC, and returns those of its answers."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        yield channel.unary_unary(SIGNALS[signal].method)


@dataclass
class Hop:
    """A next hop that keeps its requests, and answers as the test says.

    `answers` are the next status codes, then 200, or for log records `of_logs`; `said` and `body`
    are of each answer. `asked` has path and authorization of what was not refused.
    """

    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    logs: list[ExportLogsServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    of_logs: int = 200
    said: tuple[str, ...] = ()
    body: bytes = b""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, to: BaseHTTPRequestHandler, body: bytes) -> None:
        """Keeps a request, unless it is one of those that are refused."""
        code = self.answers.pop(0) if self.answers else 200
        if code == 200:
            self.asked.append((to.path, to.headers["authorization"]))
            if to.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if to.path == "/v1/traces" and body:  # an empty one asks whether it is there
                self.traces.append(ExportTraceServiceRequest.FromString(body))
            elif to.path == "/v1/logs":
                self.logs.append(ExportLogsServiceRequest.FromString(body))
                code = self.of_logs
            elif to.path == "/v1/metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        lines = (f"HTTP/1.0 {code} it is", f"content-length: {len(self.body)}", *self.said, "", "")
        to.wfile.write("\r\n".join(lines).encode() + self.body)

    def spans(self) -> list[Any]:
        """The spans that it has, in the order in which they came."""
        scopes = (group for taken in self.traces for each in taken.resource_spans
                  for group in each.scope_spans)  # fmt: skip
        return [span for group in scopes for span in group.spans]

    def records(self) -> list[Any]:
        """The log records that it has."""
        scopes = (group for taken in self.logs for each in taken.resource_logs
                  for group in each.scope_logs)  # fmt: skip
        return [record for group in scopes for record in group.log_records]

    def decided(self, name: str = "action") -> list[Any]:
        """What the spans say was decided about each."""
        return [attributes(span).get(f"loopguard.decision.{name}") for span in self.spans()]

    def told(self, name: str = "action") -> list[Any]:
        """What the log records say of each decision."""
        told = map(attributes, self.events("loopguard.decision"))
        return [each[f"loopguard.decision.{name}"] for each in told]

    def events(self, name: str) -> list[Any]:
        """The log records of a name."""
        return [record for record in self.records() if record.event_name == name]


@contextmanager
def listening(answer: Callable[[BaseHTTPRequestHandler, bytes], object]) -> Generator[str]:
    """The address of a server of HTTP that has each request, and its body, answered."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self, self.rfile.read(int(self.headers["content-length"] or 0)))

        do_GET = do_PATCH = do_POST  # noqa: N815  # as the base looks for them

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def next_hop() -> Generator[tuple[Hop, str]]:
    """A next hop over HTTP, and its URL."""
    hop = Hop()
    with listening(hop.answer) as hop.url:
        yield hop, hop.url
