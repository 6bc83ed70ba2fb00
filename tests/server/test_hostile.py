"""What may come over the wire: damaged, huge, slow, from those who may not, or a next hop."""

import asyncio
import gzip
import json
import logging
import random
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_loopguard import LoopGuardSettingsError, Settings
from otel_loopguard.cli import serve
from otel_loopguard.engine import Engine
from otel_loopguard.server import (
    Server,
    ServerSettings,
    Tenants,
    access,
    otlp,
    receiver,
    tenant_guard,
)
from otel_loopguard.server.forward import SIGNALS, EventLog
from otel_loopguard.server.metrics import TroubleLog
from otel_loopguard.server.otlp import log_views, spans_of
from otel_loopguard.server.receiver import Receiver
from otel_loopguard.server.tenant_guard import Busy, TenantGuard
from otel_loopguard.spans.views import RecordedSpan
from tests.server.serving import (
    CLIENT,
    PROTOBUF,
    Hop,
    call,
    certified,
    connected,
    exporter,
    log_record,
    pair,
    post,
    request,
    send,
    serving,
    sessions,
)
from tests.stores.servers import wait_for
from tests.tables import content, rows

JSON = {"content-type": "application/json"}
GOOD = request(call(0)).SerializeToString()
TOKEN = "a token of sixteen signs or more"


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    """A server as it is by default."""
    with serving() as started:
        yield started


REQUESTS = {
    "good": GOOD, "cut": GOOD[:-5], "packed and cut": gzip.compress(GOOD)[:-9],
    "packed twice": gzip.compress(GOOD) * 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "media", "encoding", "status", "why"), rows(__file__, "unreadable")
)
def test_what_cannot_be_read_is_a_clear_error(  # noqa: PLR0917
    server: Server, text: str, media: str, encoding: str, status: str, why: str
) -> None:
    body, told = REQUESTS.get(text) or content(text), {"content-type": media}
    headers = {name: one for name, one in (told | {"content-encoding": encoding}).items() if one}
    answer = CLIENT.post(f"{server.url}/v1/traces", content=body, headers=headers)
    assert answer.status_code == int(status)
    if media == JSON["content-type"]:
        assert why in answer.json()["message"]
    else:
        assert why in Status.FromString(answer.content).message
    assert send(server, 0).is_success


def test_a_body_of_100_megabytes_is_refused(server: Server) -> None:
    whole = b"\0" * (100 * 1024 * 1024)
    packed = gzip.compress(whole, 1), {**PROTOBUF, "content-encoding": "gzip"}
    for body, headers in ((whole, PROTOBUF), packed):
        # Python's client reads no answer before it has sent everything.
        answer = CLIENT.post(f"{server.url}/v1/traces", content=body, headers=headers)
        assert answer.status_code == 413
    assert send(server, 0).is_success


def field(number: int, body: bytes) -> bytes:
    """A field of protobuf that has a message, or bytes."""
    size, place = bytearray(), len(body)
    while place >= 128:
        size.append(place % 128 + 128)
        place //= 128
    return bytes((number << 3 | 2, *size, place)) + body


MANY = otlp.MOST_MESSAGES + 1
SPAN = field(1, b"\1" * 16) + field(2, b"\2" * 8)
CROWDED: dict[str, bytes] = {
    "resources": b"\x0a\0" * MANY,
    "spans": field(1, field(2, b"\x12\0" * MANY)),
    "events": field(1, field(2, field(2, SPAN + b"\x5a\0" * MANY))),
    "values": field(1, field(2, field(2, SPAN + field(9, field(2, field(5, b"\x0a\0" * MANY)))))),
    "spans, and a field that is none": field(1, field(2, b"\x12\0" * MANY)) + b"\x07",
    "spans of JSON": b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * MANY + b"{}]}]}]}",
}


@pytest.mark.parametrize("body", CROWDED.values(), ids=CROWDED)
def test_a_small_request_of_a_million_messages_is_refused(server: Server, body: bytes) -> None:
    """Eight of 16 kB took 10 GB, and others waited for 38 s."""
    media = JSON if body[:1] == b"{" else PROTOBUF
    answer = post(server, body=gzip.compress(body, 1), **media, **{"content-encoding": "gzip"})
    assert answer.status_code == 413
    assert send(server, 0).is_success


def test_a_large_request_is_taken(server: Server) -> None:
    body = request(*(call(number, name="x" * 800) for number in range(3_000)))
    assert len(body.SerializeToString()) > 2 * otlp.MOST_MESSAGES
    answer = post(server, body=body.SerializeToString())
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 0


def test_random_bytes_never_end_it() -> None:
    chance = random.Random(7)
    with serving(lateness_s=0) as server, httpx.Client(base_url=server.url) as client:
        for _ in range(300):
            body = bytearray(GOOD)
            for _ in range(chance.randrange(1, 20)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = client.post("/v1/traces", content=bytes(body), headers=PROTOBUF)
            assert answer.status_code in {200, 400}
        assert client.get("/healthz").text == "ok"


def test_more_than_it_may_hold_is_answered_with_busy(caplog: pytest.LogCaptureFixture) -> None:
    with serving(most_held_bytes=1, lateness_s=0.5) as server, ThreadPoolExecutor(4) as senders:
        answers = list(senders.map(lambda number: send(server, number), range(4)))
    assert {one.status_code for one in answers} == {200, 503}
    assert all("retry-after" in one.headers for one in answers if one.status_code == 503)
    why = "requests are refused: more than 1 bytes of requests would be held (busy; told again"
    assert sum(why in one for one in caplog.messages) == 1


def test_without_the_right_token_nothing_is_answered() -> None:
    with serving(Tenants({TOKEN: "one"})) as server:
        for authorization in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
            headers = {"authorization": authorization} if authorization else {}
            for method, path in (
                ("GET", "/v1/sessions"), ("GET", "/v1/sessions/a/control"),
                ("POST", "/v1/sessions/a/abort"), ("POST", "/v1/traces"),
            ):  # fmt: skip
                answer = CLIENT.request(method, server.url + path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert method == "GET" or answer.headers["connection"] == "close"
        assert CLIENT.get(server.url).is_success
        # Older releases of Starlette take the path from what the client calls its host.
        for host in ("x/livez?", "x/livez#", "x@y/livez?"):
            with connected(server, f"GET /v1/sessions HTTP/1.1\nhost: {host}\n\n") as line:
                assert line.recv(1000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(("_name", "asked", "header", "status", "why"), rows(__file__, "requests"))
def test_a_request_is_taken_or_refused(
    server: Server, _name: str, asked: str, header: str, status: str, why: str
) -> None:
    """As it is written: clients mend some of these, or do not send them."""
    host = "" if header.startswith("host") else "host: 127.0.0.1\n"
    text = f"{content(asked).decode()} HTTP/1.1\n{host}{header}".rstrip()
    with connected(server, f"{text}\n\n") as line, HTTPResponse(line) as answer:
        answer.begin()
        assert answer.status == int(status)
        assert why in answer.read().decode()


@pytest.mark.parametrize("body", rows(__file__, "bodies"))
def test_bodies_of_other_forms_are_refused(server: Server, body: str) -> None:
    send(server, 0)
    url = f"{server.url}/v1/sessions/chat-1/pause"
    answer = CLIENT.post(url, content=body, headers=JSON)
    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.content)["detail"]


@pytest.mark.parametrize(("settings", "why"), rows(__file__, "unusable"))
def test_what_cannot_be_used_is_an_error_at_start(settings: str, why: str) -> None:
    """Told without a password."""
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Server(ServerSettings(**json.loads(settings)))
    assert "hunter2" not in str(raised.value)


def test_settings_show_neither_the_address_nor_the_headers_of_the_next_hop() -> None:
    """They hold passwords and tokens."""
    settings = ServerSettings(forward="http://me:hunter2@x", headers={"authorization": "hunter2"})
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("wrong", ["no key", "no certificate", "key", "certificate", "encrypted"])
def test_a_certificate_that_cannot_be_used_is_an_error_at_start(tmp_path: Path, wrong: str) -> None:
    """The server neither listened nor ended; for a password it is not asked."""
    certificate, key = certified(tmp_path)
    why = r"key = "
    if wrong == "encrypted":
        command = f"openssl rsa -aes256 -passout pass:secret -in {key} -out {key}.pem"
        subprocess.run(command.split(), check=True, capture_output=True)
        key, why = f"{key}.pem", "TLS cannot use them"
    elif "key" in wrong:
        key = "" if wrong == "no key" else "none.pem"
    else:
        certificate = "" if wrong == "no certificate" else "none.pem"
    with pytest.raises(LoopGuardSettingsError, match=why):
        Server(ServerSettings(certificate=certificate, key=key))


@pytest.mark.parametrize(("text", "why"), rows(__file__, "tokens"))
def test_tokens_that_cannot_be_used_are_an_error(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / ("tokens" if text == "another name" else "tokens.toml")
    written = text.replace("\\n", "\n").replace("<token>", TOKEN)
    file.write_text("" if text in ("another name", "nothing") else written)
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Tenants.from_file(file)
    assert TOKEN not in str(raised.value)


def test_a_token_that_is_too_short_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve.TOKEN, "short")
    why = r"LOOPGUARD_SERVE_TOKEN: .* has 5 characters, expected 16 or more"
    with pytest.raises(LoopGuardSettingsError, match=why):
        serve.run(Settings, None, [])


def test_large_requests_are_read_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of 22 kB kept all others waiting for 47 s."""
    reads: list[str] = []
    decode = otlp.decode

    def seen(*args: object) -> object:
        reads.append(threading.current_thread().name)
        return decode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(otlp, "decode", seen)
    spans = ",".join(['{"name": "x"}'] * 10_000)
    body = f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{spans}]}}]}}]}}'.encode()
    with serving() as server:
        answer = post(server, body=gzip.compress(body), **JSON, **{"content-encoding": "gzip"})
        assert answer.json()["partialSuccess"]["rejectedSpans"] == "10000"
        assert send(server, 0).is_success
    large, small = reads
    assert large != small


def test_bytes_count_from_the_first_one_that_came() -> None:
    head = "POST /v1/traces HTTP/1.1\nhost: 127.0.0.1\ncontent-length: 9999\n"
    head += "content-type: application/x-protobuf\n\n"

    def refused() -> bool:  # the one that comes first is held
        with connected(server, head) as line:
            line.sendall(b"\0" * 9_900)
            return send(server, 0).status_code == 503

    with serving(most_held_bytes=10_000) as server:
        wait_for(refused)
        wait_for(lambda: send(server, 0).status_code == 200)


BODIES = [
    f"POST {path} HTTP/1.1\nhost: 127.0.0.1\ncontent-length: 99\ncontent-type: application/json\n\n"
    for path in ("/v1/traces", "/v1/sessions/a/pause")
]


@pytest.mark.parametrize("begun", ["", "GET /healthz HTTP/1.1\n", *BODIES])
@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begun: str, before: int
) -> None:
    limit = (receiver, "BODY_S") if begun in BODIES else (access, "HEAD_S")
    monkeypatch.setattr(*limit, 0.1)
    monkeypatch.setattr("otel_loopguard.server.access.KEEP_ALIVE_S", 1)
    whole = "GET /healthz HTTP/1.1\nhost: 127.0.0.1\n\n"
    with serving() as server, connected(server, whole * before + begun) as line:
        said = b"".join(iter(lambda: line.recv(1000), b""))
    assert said.count(b"200 OK") == before
    assert said.count(b"HTTP/1.1 408 ") == (begun in BODIES)


def test_strangers_who_wait_take_no_descriptor_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has been idle for longest goes; requests are answered, with a connection in use too."""
    monkeypatch.setattr(access, "HEAD_S", 600)
    monkeypatch.setattr(access, "most_connections", lambda: 4)
    with serving() as server, httpx.Client() as client, ExitStack() as stack:
        assert client.get(f"{server.url}/healthz").is_success
        strangers = [stack.enter_context(connected(server)) for _ in range(12)]
        assert [line.recv(1) for line in strangers[:8]] == [b""] * 8
        assert CLIENT.get(f"{server.url}/healthz").is_success
        assert client.get(f"{server.url}/healthz").is_success


def test_a_handshake_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before asyncio would by itself, which takes a minute."""
    monkeypatch.setattr(access, "HEAD_S", 0.1)
    certificate, key = certified(tmp_path)
    with serving(certificate=certificate, key=key) as server, connected(server) as line:
        line.settimeout(30)
        assert line.recv(1) == b""


def test_strangers_in_handshakes_take_no_descriptor_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as connections; who asks is answered once some of them are given up."""
    monkeypatch.setattr(access, "HEAD_S", 2)
    monkeypatch.setattr(access, "most_connections", lambda: 4)
    certificate, key = certified(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    with serving(certificate=certificate, key=key) as server, ExitStack() as stack:
        # It says so once a minute, and another test looks for that line; uvicorn enables it.
        monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)
        taken = count_taken(monkeypatch)
        for _ in range(6):
            stack.enter_context(connected(server))
        with httpx.Client(verify=context, timeout=60) as client:
            assert client.get(f"{server.url}/healthz").is_success
        assert max(taken) <= 4


def count_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the connections that are open whenever one more is taken."""
    counts: list[int] = []
    open_: list[socket.socket] = []
    real = access.TlsSocket.accept

    def accept(self: access.TlsSocket) -> tuple[socket.socket, Any]:
        found = real(self)
        open_.append(found[0])
        counts.append(sum(one.fileno() >= 0 for one in open_))
        return found

    monkeypatch.setattr(access.TlsSocket, "accept", accept)
    return counts


def test_who_reads_no_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of questions, of which each answer is large, waits in the server for nothing."""
    lost, real = threading.Event(), access.HttpProtocol.connection_lost

    def connection_lost(*given: Any) -> None:
        real(*given)
        lost.set()

    monkeypatch.setattr(access, "READ_S", 0.1)
    monkeypatch.setattr(access.HttpProtocol, "connection_lost", connection_lost)
    ask = "GET /v1/openapi.json HTTP/1.1\nhost: 127.0.0.1\n\n"
    with serving() as server, connected(server, ask * 1000):
        assert lost.wait(60)


@pytest.mark.parametrize("limit", ["HEAD_S", "KEEP_ALIVE_S", "most_connections"])
def test_strangers_keep_no_connection_over_grpc(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, limit, (lambda: 0) if limit == "most_connections" else 0.1)
    begun = b"" if limit == "HEAD_S" else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    with (
        serving(grpc="127.0.0.1:0") as server,
        socket.create_connection(("127.0.0.1", server.grpc_port), timeout=60) as line,
        suppress(ConnectionError),
    ):
        line.sendall(begun)
        while line.recv(1000):
            pass


def test_a_stranger_is_refused_over_grpc_before_the_message_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """80 calls that never ended held 1.3 GB; with a token a message has half a minute."""
    monkeypatch.setattr(receiver, "BODY_S", 0.1)
    known = (("authorization", f"Bearer {TOKEN}"),)
    running = serving(Tenants({TOKEN: "one"}), grpc="127.0.0.1:0")
    with running as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        export: Callable[..., bytes] = channel.stream_unary(SIGNALS["traces"].method)
        for metadata, code in ((), "UNAUTHENTICATED"), (known, "DEADLINE_EXCEEDED"):
            never = threading.Event()
            with pytest.raises(grpc.RpcError, match=code):
                export(iter(never.wait, True), metadata=metadata, timeout=60)
            never.set()


def test_what_strangers_cause_is_logged_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """They could fill the disk: asyncio and uvicorn say it for each of their connections."""
    said = "socket.accept() out of system resource\nsocket: <socket.socket fd=6>"
    broken = "POST /v1/traces HTTP/1.1\nhost: x\ntransfer-encoding: chunked\n\nno size\n"
    with serving() as server:
        for _ in range(100):
            logging.getLogger("asyncio").error(said)
        logging.getLogger("asyncio").error("something else")
        for text in ("none\n\n", broken) * 9:
            with connected(server, text) as line:
                assert line.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert [line[:16] for line in caplog.messages].count("socket.accept() ") == 1
    assert "something else" in caplog.messages
    told = capsys.readouterr().err
    assert told.count("Invalid HTTP request") == 1
    assert told.count("Exception in ASGI application") <= 1


def test_who_takes_the_port_for_another_is_told_so(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exporter of gRPC was told of names and tokens, and Java of libraries for web sockets."""
    offer = "GET /livez HTTP/1.1\nhost: 127.0.0.1\nconnection: upgrade\nupgrade: h2c\n\n"
    with serving(Tenants({TOKEN: "one"})) as server:
        with connected(server, "PRI * HTTP/2.0\n\nSM\n\n") as line:
            assert line.recv(1000).startswith(b"HTTP/1.1 505 ")
        with connected(server, offer) as line:
            assert line.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert (
        sum("gRPC has a port of its own" in one for one in caplog.messages) == 2
    )  # and at its end
    assert not capsys.readouterr().err
    assert not any("token" in one for one in caplog.messages)


def test_ids_of_other_sizes_are_none() -> None:
    """Of megabytes they stayed in tables, and no decision about them could be sent on."""
    long = b"\xff" * 100
    [(_, span)] = spans_of(request(call(0, parent_span_id=long)))
    written = log_record("codex.tool_result", 0, pair("conversation.id", "chat-1"))
    logs = ExportLogsServiceRequest.FromString(written)
    record = logs.resource_logs[0].scope_logs[0].log_records[0]
    record.trace_id = record.span_id = long
    [logged] = log_views(logs)
    assert span.parent_id is logged.parent_id is None
    assert logged.trace_id < 2**128


def test_spans_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that senders try again, and one request may have more; other tenants are served."""
    monkeypatch.setattr(tenant_guard, "MOST_WAITING", 3)
    spans = [
        RecordedSpan("x", trace_id=1, span_id=number, start=1, end=2) for number in range(1, 9)
    ]

    async def judged() -> list[object]:
        one, other = (TenantGuard(Engine(local=False), 0.05) for _ in range(2))
        asked = [one.judge(spans[:6]), one.judge(spans[6:]), other.judge(spans[6:])]
        found = await asyncio.gather(*asked, return_exceptions=True)
        found.append(await one.judge(spans[6:]))
        await one.close()
        await other.close()
        return list(found)

    first, busy, elsewhere, again = asyncio.run(judged())
    assert isinstance(busy, Busy)
    assert first == elsewhere == again == {}


def test_a_connection_is_kept_for_as_long_as_clients_keep_it() -> None:
    with serving() as server, httpx.Client() as client:
        answers = [client.get(f"{server.url}/healthz") for _ in range(2)]
        streams = (one.extensions["network_stream"] for one in answers)
        assert len({one.get_extra_info("client_addr") for one in streams}) == 1


def test_a_long_poll_outlives_the_limit_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "HEAD_S", 0.05)
    with serving() as server:
        version = CLIENT.get(f"{server.url}/v1/sessions/a/control").json()["version"]
        url = f"{server.url}/v1/sessions/a/control?wait=1&since={version}"
        assert CLIENT.get(url).json()["version"] == version


def test_nothing_is_read_over_grpc_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    holding = Receiver.holding

    def seen(self: Receiver, tenant: str) -> object:
        held.append(1)
        return holding(self, tenant)

    monkeypatch.setattr(Receiver, "holding", seen)
    known = (("authorization", f"Bearer {TOKEN}"),)
    running = serving(Tenants({TOKEN: "one"}), grpc="127.0.0.1:0")
    with running as server, exporter(server) as export:
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            export(GOOD)
        assert not held
        export(GOOD, metadata=known)
        assert held
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            export(b"\xff\xff", metadata=known)


@pytest.mark.parametrize("code", [403, 404])
def test_spans_go_on_where_decisions_cannot(
    hop: Hop, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Many a next hop has no address for log records, or takes none with this token."""
    hop.of_logs = code
    with serving(forward=hop.url) as server:
        for number in range(6):
            assert send(server, number).is_success
    assert len(hop.traces) == 6
    told = [one for one in caplog.messages if "decisions are not forwarded as log records" in one]
    assert len(told) == 1


REJECTED = ExportTraceServiceResponse()
REJECTED.partial_success.rejected_spans = 2**63 - 1


@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        ("content-type: application/x-protobuf", REJECTED.SerializeToString(), 200),
        ("retry-after: €", b"", 503),
        (f"retry-after: {'9' * 5_000}", b"", 503),
        ("content-encoding: gzip, gzip", gzip.compress(gzip.compress(b"\0" * 50_000_000)), 200),
    ],
    ids=["rejected more than there is", "no time", "a long time", "a bomb"],
)
def test_what_a_next_hop_answers_is_not_believed(
    hop: Hop, header: str, body: bytes, status: int
) -> None:
    hop.said, hop.body, hop.of_logs = (header,), body, status
    with serving(forward=hop.url) as server:
        invalid = call(0, trace_id=b"")
        answer = post(server, invalid, *map(call, range(3)))
        assert (answer.status_code, answer.headers.get("retry-after", "1")) == (status, "1")
        if status == 200:
            found = ExportTraceServiceResponse.FromString(answer.content).partial_success
            assert 1 <= found.rejected_spans < 10_000


def test_the_password_of_the_next_hop_is_told_to_it_alone(
    hop: Hop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(forward=hop.url.replace("//", "//me:hunter2@")) as server:
        assert send(server, 0).is_success
    assert hop.asked == [("/v1/traces", "Basic bWU6aHVudGVyMg==")]
    assert "hunter2" not in caplog.text


def test_a_next_hop_of_ip_6_is_reached_over_grpc() -> None:
    with serving(http="[::1]:0", grpc="[::1]:0") as hop:
        with serving(forward=f"grpc://[::1]:{hop.grpc_port}") as server:
            assert send(server, 0).status_code == 200
        assert sessions(hop)


def test_decisions_that_wait_are_no_larger_than_a_next_hop_takes() -> None:
    """Together they were, and it refused them, and with them all spans, for ever."""
    record = LogRecord(event_name="x" * 900)
    with ExitStack() as running:
        hop = running.enter_context(serving(grpc="127.0.0.1:0", most_bytes=1_000_000))
        to = f"grpc://127.0.0.1:{hop.grpc_port}"
        server = running.enter_context(serving(forward=to))
        waiting = server.engines["default"].log
        for _ in range(2_000):
            waiting.add(record)
        assert send(server, 0).status_code == 200
        assert not waiting


def test_a_request_that_comes_as_decisions_were_sent_sends_the_rest() -> None:
    """It waited for a task that was done, again and again, and nothing else ran any more."""

    class Log(EventLog):
        looks = 0

        def __len__(self) -> int:
            self.looks += 1
            assert self.looks < 1_000
            return super().__len__()

    class At:
        """An engine, and a next hop that takes all."""

        log = Log("default")

        async def sent(self, ids: Sequence[str]) -> None:
            self.log.sent(ids)

        async def send(self, *_: object) -> None:
            others.append(asyncio.create_task(receiver.send_decisions("default")))

    async def run() -> None:
        await receiver.send_decisions("default")
        await asyncio.gather(*others)

    others: list[asyncio.Task[None]] = []
    at: Any = At()
    receiver = Receiver({"default": at}, TroubleLog(""), at, mode="annotated", most_bytes=1)
    for _ in range(2_000):
        at.log.add(LogRecord(event_name="decided"))
    asyncio.run(run())
    assert not at.log


KEYS = ("a/b", "a/control", "a/abort", "%2e%2e", "a?b#c", "+&id=x", "ä ö")
CHANGED = ("/", ".", "..", "a//b")  # by clients and proxies, where it stands in a path


@pytest.mark.parametrize(
    ("session", "in_path"),
    [*((key, True) for key in KEYS), *((key, False) for key in KEYS + CHANGED)],
)
def test_a_session_is_the_one_that_is_named(session: str, in_path: bool) -> None:
    """It was shown, or stopped, as another one."""
    url, query = "/v1/session", {"id": session}
    if in_path:
        url, query = f"/v1/sessions/{quote(session, safe='')}", {}
    with serving() as server, httpx.Client(base_url=server.url, params=query) as client:
        assert send(server, 0, session=session).is_success
        assert client.get(url).json()["session"]["session"] == session
        assert client.post(f"{url}/abort", json={}).json()["action"] == "abort"
        found = client.get(f"{url}/control").json()
        assert (found["session"], found["action"]) == (session, "abort")
        with client.stream("GET", f"{url}/events") as events:
            assert "event: control" in next(events.iter_lines())
