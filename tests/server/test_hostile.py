"""What may come over the wire: damaged, huge, slow, from those who may not, or a next hop."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from math import inf, nan
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import grpc
import httpx
import pytest
from google.rpc.status_pb2 import Status

from otel_loopguard import Settings
from otel_loopguard.cli import serve
from otel_loopguard.engine import Engine
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.server import Server, ServerSettings, Tenants, access, receiver, tenant_guard
from otel_loopguard.server.receiver import Receiver
from otel_loopguard.server.server import KEEP_ALIVE_S
from otel_loopguard.server.tenant_guard import Busy, TenantGuard
from otel_loopguard.spans.views import RecordedSpan
from tests.server.serving import (
    PROTOBUF,
    call,
    certified,
    listening,
    post,
    request,
    send,
    serving,
    sessions,
)
from tests.stores.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

JSON = {"content-type": "application/json"}
GOOD = request(call(0)).SerializeToString()
TOKEN = "a token of sixteen signs or more"


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    """A server as it is by default."""
    with serving() as started:
        yield started


@pytest.mark.parametrize(
    ("body", "headers", "status", "why"),
    [
        (b"\xff\xff\xff", PROTOBUF, 400, "not a valid protobuf message"),
        (GOOD[:-5], PROTOBUF, 400, "not a valid protobuf message"),
        (b"{", JSON, 400, "not valid OTLP JSON"),
        (b"[]", JSON, 400, "not valid OTLP JSON"),
        (b'{"resourceSpans": 7}', JSON, 400, "not valid OTLP JSON"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}', JSON, 400, "valid"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"\xc3\xa9"}]}]}]}', JSON, 400, ""),
        (b"[" * 100_000, JSON, 400, "body"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, JSON, 400, "body"),
        (GOOD, {"content-type": "text/plain"}, 415, "is not supported"),
        (GOOD, {}, 415, "is not supported"),
        (GOOD, {**PROTOBUF, "content-encoding": "br"}, 415, "is not supported"),
        (GOOD, {**PROTOBUF, "content-encoding": "gzip"}, 400, "not valid gzip"),
        (gzip.compress(GOOD)[:-9], {**PROTOBUF, "content-encoding": "gzip"}, 400, "cut"),
    ],
)
def test_what_cannot_be_read_is_a_clear_error(
    server: Server, body: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    answer = httpx.post(f"{server.url}/v1/traces", content=body, headers=headers)
    assert answer.status_code == status
    if headers.get("content-type") == "application/json":
        assert why in answer.json()["message"]
    else:
        assert why in Status.FromString(answer.content).message
    assert send(server, 0).is_success


def test_a_body_of_100_megabytes_is_refused(server: Server) -> None:
    packed = gzip.compress(b"\0" * (100 * 1024 * 1024), 1)
    for body, headers in (
        (b"\0" * (100 * 1024 * 1024), PROTOBUF),
        (packed, {**PROTOBUF, "content-encoding": "gzip"}),
    ):
        # Python's client reads no answer before it has sent everything.
        answer = httpx.post(f"{server.url}/v1/traces", content=body, headers=headers)
        assert answer.status_code == 413
    assert send(server, 0).is_success


def test_random_bytes_never_end_it() -> None:
    chance = random.Random(7)
    with serving() as server, httpx.Client(base_url=server.url) as client:
        for _ in range(300):
            body = bytearray(GOOD)
            for _ in range(chance.randrange(1, 20)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = client.post("/v1/traces", content=bytes(body), headers=PROTOBUF)
            assert answer.status_code in {200, 400}
        assert client.get("/healthz").text == "ok"


def test_more_than_it_may_hold_is_answered_with_busy(caplog: pytest.LogCaptureFixture) -> None:
    with serving(most_held_bytes=1, lateness_s=0.5) as server:
        answers: list[httpx.Response] = []

        threads = [
            threading.Thread(target=lambda n=number: answers.append(send(server, n)))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] == 200
        assert codes[-1] == 503
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
                answer = httpx.request(method, server.url + path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert httpx.get(server.url).is_success


@pytest.mark.parametrize(
    "headers", [{"host": "attacker.test"}, {"origin": "http://attacker.test"}, {"origin": "null"}]
)
def test_pages_of_other_sites_neither_read_nor_steer(
    server: Server, headers: dict[str, str]
) -> None:
    answer = httpx.get(f"{server.url}/v1/sessions", headers=headers)
    assert answer.status_code in {403, 421}
    forged = httpx.post(
        f"{server.url}/v1/sessions/a/abort", content=b"{}",
        headers={"content-type": "text/plain"},
    )  # fmt: skip
    assert forged.status_code == 415


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b'{"by": 7}', b'{"reason": []}'])
def test_bodies_of_other_forms_are_refused(server: Server, body: bytes) -> None:
    send(server, 0)
    url = f"{server.url}/v1/sessions/chat-1/pause"
    answer = httpx.post(url, content=body, headers=JSON)
    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.content)["detail"]


FORWARDS = (
    "ftp://x", "http://", "localhost:4317", "grpc://", "ftp://me:hunter2@x", "http://me:hunter2@",
    "http://me:hunter2/x@y", "http://[::1", "grpc://h:99999",
)  # fmt: skip
HEADERS = (("a b", "x"), ("a", "x\r\ny: z"), ("a", "€"), ("", "x"))
UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"http": "0.0.0.0:0"}, "without tokens only loopback is served"),
    ({"grpc": "192.0.2.1:4317"}, "without tokens only loopback is served"),
    ({"http": "4318"}, "http = '4318': expected host:port"),
    ({"http": "127.0.0.1:99999"}, "expected host:port"),
    *(({"lateness_s": value}, f"lateness_s = {value}: expected") for value in (-1, nan, inf)),
    ({"drain_s": nan}, "drain_s = nan: expected a finite number"),
    *(({"forward": url}, "forward = ") for url in FORWARDS),
    *(({"forward": "http://h", "headers": dict([header])}, "headers: ") for header in HEADERS),
]


@pytest.mark.parametrize(("settings", "why"), UNUSABLE)
def test_what_cannot_be_used_is_an_error_at_start(settings: dict[str, Any], why: str) -> None:
    """Told without a password."""
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Server(ServerSettings(**settings))
    assert "hunter2" not in str(raised.value)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certified(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("certificate", "key"), [(True, False), (False, True), ("none.pem", True), (True, "none.pem")]
)
def test_a_certificate_that_cannot_be_used_is_an_error_at_start(
    pair: tuple[str, str], certificate: bool | str, key: bool | str
) -> None:
    """The server neither listened nor ended."""
    files = [made if given is True else given or "" for made, given in
             zip(pair, (certificate, key), strict=True)]  # fmt: skip
    with pytest.raises(LoopGuardSettingsError, match=r"key = "):
        Server(ServerSettings(certificate=files[0], key=files[1]))


def test_an_encrypted_key_is_not_asked_for(pair: tuple[str, str], tmp_path: Path) -> None:
    key = str(tmp_path / "encrypted.pem")
    command = f"openssl rsa -aes256 -passout pass:secret -in {pair[1]} -out {key}"
    subprocess.run(command.split(), check=True, capture_output=True)
    with pytest.raises(LoopGuardSettingsError, match="TLS cannot use them"):
        Server(ServerSettings(certificate=pair[0], key=key))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, r"expected a file ending in \.toml"),
        ("", r"expected a table \[tokens\]"),
        ("tokens = 7", r"expected a table \[tokens\]"),
        ("[tokens]\none = 'short'", "has 5 characters, expected 16 or more"),
        (f"[tokens]\none = '{TOKEN}'\ntwo = '{TOKEN}'", "is another's"),
        ("[tokens]\none = [7]", "is no token"),
        ("[tokens", "cannot be read"),
    ],
)
def test_tokens_that_cannot_be_used_are_an_error(
    tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / ("tokens" if text is None else "tokens.toml")
    file.write_text(text or "")
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Tenants.from_file(file)
    assert TOKEN not in str(raised.value)


def test_a_token_that_is_too_short_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve.TOKEN, "short")
    with pytest.raises(
        LoopGuardSettingsError,
        match=r"LOOPGUARD_SERVE_TOKEN: .* has 5 characters, expected 16 or more",
    ):
        serve.run(Settings(), None, [])


def ask(server: Server, text: str) -> bytes:
    """The beginning of what is answered to a request as it is written here."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        return line.recv(1000)


@contextmanager
def next_hop(*answer: str, logs: int = 200, body: bytes = b"") -> Generator[tuple[str, list[str]]]:
    """A next hop with these headers in its answers, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(f"{self.path} {self.headers['authorization']}")
            code = logs if self.path == "/v1/logs" else 200
            lines = (f"HTTP/1.0 {code} as it is", f"content-length: {len(body)}", *answer, "", "")
            self.wfile.write("\r\n".join(lines).encode() + body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base
            pass

    with listening(Handler) as url:
        yield url.removeprefix("http://"), asked


@pytest.mark.parametrize(
    "host", ["attacker.test:", "attacker.test:99999", "127.0.0.1/x@attacker.test", "é.test", "[::1"]
)
def test_a_host_that_is_no_name_is_not_taken_for_this_machine(server: Server, host: str) -> None:
    answer = ask(server, f"GET /v1/sessions HTTP/1.1\nhost: {host}\n\n")
    assert answer.startswith(b"HTTP/1.1 421 ")


def test_large_requests_are_read_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of 22 kB kept all others waiting for 47 s."""
    reads: list[str] = []
    decode = receiver.decode

    def seen(*args: object) -> object:
        reads.append(threading.current_thread().name)
        return decode(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(receiver, "decode", seen)
    spans = ",".join(['{"name": "x"}'] * 10_000)
    body = f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{spans}]}}]}}]}}'.encode()
    with serving() as server:
        answer = post(server, body=gzip.compress(body), **JSON, **{"content-encoding": "gzip"})
        assert answer.json()["partialSuccess"]["rejectedSpans"] == "10000"
        assert send(server, 0).is_success
    large, small = reads
    assert large != small


def test_bytes_count_from_the_first_one_that_came() -> None:
    with serving(most_held_bytes=1_000_000) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            head = "POST /v1/traces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 999999\r\n"
            line.sendall(f"{head}content-type: application/x-protobuf\r\n\r\n".encode())
            line.sendall(b"\0" * 999_900)
            wait_for(lambda: send(server, 0).status_code == 503)
        wait_for(lambda: send(server, 0).status_code == 200)


def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "BODY_S", 0.1)
    with serving() as server:
        head = "POST /v1/traces HTTP/1.1\nhost: 127.0.0.1\ncontent-length: 99\n\n"
        assert ask(server, head).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("begun", ["", "GET /healthz HTTP/1.1\n"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_head_that_never_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begun: str, before: int
) -> None:
    monkeypatch.setattr(access, "HEAD_S", 0.1)
    monkeypatch.setattr("otel_loopguard.server.server.KEEP_ALIVE_S", 1)
    whole = "GET /healthz HTTP/1.1\nhost: 127.0.0.1\n\n"
    with serving() as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall((whole * before + begun).replace("\n", "\r\n").encode())
            said = b""
            while piece := line.recv(1000):
                said += piece
        assert said.count(b"200 OK") == before


def test_strangers_who_wait_take_no_descriptor_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has been idle for longest goes; requests are answered, with a connection in use too."""
    monkeypatch.setattr(access, "HEAD_S", 600)
    monkeypatch.setattr(access, "most_connections", lambda: 4)
    with serving() as server, httpx.Client() as client:
        assert client.get(f"{server.url}/healthz").is_success
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        strangers = [socket.create_connection((host, int(port)), timeout=60) for _ in range(12)]
        assert [line.recv(1) for line in strangers[:8]] == [b""] * 8
        assert httpx.get(f"{server.url}/healthz").is_success
        assert client.get(f"{server.url}/healthz").is_success
        for line in strangers:
            line.close()


def test_a_shortage_of_descriptors_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger could fill the disk: asyncio says it for each connection that it cannot take."""
    said = "socket.accept() out of system resource\nsocket: <socket.socket fd=6>"
    with serving():
        for _ in range(100):
            logging.getLogger("asyncio").error(said)
        logging.getLogger("asyncio").error("something else")
    assert [line[:16] for line in caplog.messages].count("socket.accept() ") == 1
    assert "something else" in caplog.messages


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
        lines = {_line(client.get(f"{server.url}/healthz")) for _ in range(2)}
    assert len(lines) == 1
    # The idle limit of Go's net/http, and of the Collector's exporters: the client is to be first.
    assert KEEP_ALIVE_S > 90


def test_a_connection_is_not_kept_for_whom_nothing_is_answered() -> None:
    with serving(Tenants({TOKEN: "one"})) as server, httpx.Client() as client:
        refused = client.post(f"{server.url}/v1/traces", content=GOOD, headers=PROTOBUF)
    assert (refused.status_code, refused.headers["connection"]) == (401, "close")


def _line(response: httpx.Response) -> object:
    """The client's end of the connection that a response came over."""
    return response.extensions["network_stream"].get_extra_info("client_addr")


def test_a_long_poll_outlives_the_limit_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "HEAD_S", 0.05)
    with serving() as server:
        version = httpx.get(f"{server.url}/v1/sessions/a/control").json()["version"]
        url = f"{server.url}/v1/sessions/a/control?wait=1&since={version}"
        assert httpx.get(url).json()["version"] == version


def test_nothing_is_read_over_grpc_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    holding = Receiver.holding

    def seen(self: Receiver) -> object:
        held.append(1)
        return holding(self)

    monkeypatch.setattr(Receiver, "holding", seen)
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    known = (("authorization", f"Bearer {TOKEN}"),)
    with (
        serving(Tenants({TOKEN: "one"}), grpc="127.0.0.1:0") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        export = cast("Any", channel).unary_unary(method)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            export(GOOD)
        assert not held
        export(GOOD, metadata=known)
        assert held
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            export(b"\xff\xff", metadata=known)


@pytest.mark.parametrize("code", [403, 404])
def test_spans_go_on_where_decisions_cannot(code: int, caplog: pytest.LogCaptureFixture) -> None:
    """Many a next hop has no address for log records, or takes none with this token."""
    with next_hop(logs=code) as (address, asked), serving(forward=f"http://{address}") as server:
        for number in range(6):
            assert send(server, number).is_success
    assert sum(line.startswith("/v1/traces") for line in asked) == 6
    told = [one for one in caplog.messages if "decisions do not go on as log records" in one]
    assert len(told) == 1


@pytest.mark.parametrize(
    ("header", "body", "status"),
    [
        ("retry-after: €", b"", 503),
        (f"retry-after: {'9' * 5_000}", b"", 503),
        ("content-encoding: gzip, gzip", gzip.compress(gzip.compress(b"\0" * 50_000_000)), 200),
    ],
    ids=["no time", "a long time", "a bomb"],
)
def test_what_a_next_hop_answers_is_not_believed(header: str, body: bytes, status: int) -> None:
    with (
        next_hop(header, body=body, logs=status) as (address, _),
        serving(forward=f"http://{address}") as server,
    ):
        answer = send(server, 0, 1, 2)
        assert (answer.status_code, answer.headers.get("retry-after", "1")) == (status, "1")
        assert status != 200 or answer.content == b""


def test_the_password_of_the_next_hop_is_told_to_it_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        next_hop() as (address, asked),
        serving(forward=f"http://me:hunter2@{address}") as server,
    ):
        assert send(server, 0).is_success
    assert asked == ["/v1/traces Basic bWU6aHVudGVyMg=="]
    assert "hunter2" not in caplog.text


def test_a_next_hop_of_ip_6_is_reached_over_grpc() -> None:
    with serving(http="[::1]:0", grpc="[::1]:0") as hop:
        with serving(forward=f"grpc://[::1]:{hop.grpc_port}") as server:
            assert send(server, 0).status_code == 200
        assert sessions(hop)


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


@pytest.mark.parametrize("path", ["session", "session/control", "session/events?id=", "sessions/"])
def test_a_key_that_is_missing_is_an_error(server: Server, path: str) -> None:
    answer = httpx.get(f"{server.url}/v1/{path}")
    assert answer.status_code == 422
    assert "`id`" in answer.json()["detail"]
