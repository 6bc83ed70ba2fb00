"""Peers that want the server's time or memory, or its next hop's; and a next hop that is one."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import quote

import grpc
import httpx
import pytest

from otel_loopguard.engine import Engine
from otel_loopguard.server import Server, Tenants, access, receiver, tenant_guard
from otel_loopguard.server.receiver import Receiver
from otel_loopguard.server.server import KEEP_ALIVE_S
from otel_loopguard.server.tenant_guard import Busy, TenantGuard
from otel_loopguard.spans.views import RecordedSpan
from tests.server.serving import (
    PROTOBUF,
    call,
    control,
    post,
    request,
    send,
    serving,
    sessions,
)
from tests.stores.servers import wait_for

JSON = {"content-type": "application/json"}
GOOD = request(call(0)).SerializeToString()
TOKEN = "a token of sixteen signs or more"


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

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "host", ["attacker.test:", "attacker.test:99999", "127.0.0.1/x@attacker.test", "é.test", "[::1"]
)
def test_a_host_that_is_no_name_is_not_taken_for_this_machine(host: str) -> None:
    with serving() as server:
        answer = ask(server, f"GET /v1/sessions HTTP/1.1\nhost: {host}\n\n")
        assert answer.startswith(b"HTTP/1.1 421 ")


def test_an_id_with_other_signs_is_a_clear_error() -> None:
    body = '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "é"}]}]}]}'
    with serving() as server:
        assert post(server, body=body.encode(), **JSON).status_code == 400


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


@pytest.mark.parametrize("after", ["€", "9" * 5_000])
def test_a_time_to_retry_that_is_none_is_not_passed_on(after: str) -> None:
    with (
        next_hop(f"retry-after: {after}", logs=503) as (address, _),
        serving(forward=f"http://{address}") as server,
    ):
        answer = send(server, 0, 1, 2)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_reply_of_the_next_hop_is_not_unpacked() -> None:
    packed = gzip.compress(gzip.compress(b"\0" * 50_000_000))
    with (
        next_hop("content-encoding: gzip, gzip", body=packed) as (address, _),
        serving(forward=f"http://{address}") as server,
    ):
        answer = send(server, 0)
        assert (answer.status_code, answer.content) == (200, b"")


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


KEYS = ("a/b", "a/control", "a/abort", "control", "%2e", "%2e%2e", "a?b#c", "é", "ä ö")


@pytest.mark.parametrize("session", KEYS)
def test_a_session_is_the_one_that_is_named(session: str) -> None:
    """It was shown, or stopped, as another one."""
    with serving() as server:
        assert send(server, 0, session=session).is_success
        url = f"{server.url}/v1/sessions/{quote(session, safe='')}"
        assert httpx.get(url).json()["session"]["session"] == session
        assert httpx.post(f"{url}/abort", json={}).json()["action"] == "abort"
        found = control(server, session)
        assert (found["session"], found["action"]) == (session, "abort")


@pytest.mark.parametrize("session", ["..", ".", "../..", "/", "a//b", "%2F", "a/abort", "+&id=x"])
def test_any_session_is_reached_by_its_key_in_the_query(session: str) -> None:
    """Clients take `..` out of paths, and proxies merge slashes."""
    with serving() as server:
        assert send(server, 0, session=session).is_success
        url, query = f"{server.url}/v1/session", {"id": session}
        assert httpx.get(url, params=query).json()["session"]["session"] == session
        assert httpx.post(f"{url}/abort", params=query, json={}).json()["action"] == "abort"
        found = httpx.get(f"{url}/control", params=query).json()
        assert (found["session"], found["action"]) == (session, "abort")
        with httpx.stream("GET", f"{url}/events", params=query) as events:
            assert "event: control" in next(events.iter_lines())


@pytest.mark.parametrize("path", ["session", "session/control", "session/events?id=", "sessions/"])
def test_a_key_that_is_missing_is_an_error(path: str) -> None:
    with serving() as server:
        answer = httpx.get(f"{server.url}/v1/{path}")
        assert answer.status_code == 422
        assert "`id`" in answer.json()["detail"]
