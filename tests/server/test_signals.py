"""What a server reads again while it runs, on SIGHUP, and how it ends."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import httpx
import pytest

from otel_loopguard.server import Server, ServerSettings, Tenants, app
from otel_loopguard.server import server as server_module
from otel_loopguard.server.forward import SIGNALS
from tests.server.process import PROGRAM, Serve
from tests.server.serving import (
    CLIENT,
    PROTOBUF,
    Hop,
    attributes,
    bearer,
    call,
    certified,
    exporter,
    request,
    send,
    serving,
)
from tests.stores.servers import Server as Redis
from tests.stores.servers import free_port, wait_for

OLD, NEW, OTHER = (f"the {which} token of this test" for which in ("old", "new", "other"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")


def reloaded(server: Serve, *words: str) -> None:
    """Has it read all again, and waits for the line that says so."""
    before = len(server.logged("reloaded: "))
    server.tell(signal.SIGHUP)
    wait_for(lambda: len(server.logged("reloaded: ")) > before)
    line = server.logged("reloaded: ")[-1]
    assert [word for word in words if word not in line] == []


def test_tokens_are_read_again(tmp_path: Path) -> None:
    """A tenant's tokens change, one is new and one gone; what is known of sessions stays.

    What cannot be used changes nothing.
    """
    tokens = tmp_path / "tokens.toml"
    of_metrics = "metrics = 'the-token-of-Prometheus'\n"
    tokens.write_text(f'{of_metrics}[tokens]\none = "{OLD}"\ntwo = "{OTHER}"\n', encoding="utf-8")
    with Serve(tmp_path / "log", "--tokens", str(tokens)) as server:
        assert [server.send(0, token) for token in (OLD, NEW, OTHER)] == [200, 401, 200]
        tokens.write_text(f'[tokens]\none = "{NEW}"\nthree = "{OLD}"\n', encoding="utf-8")
        reloaded(
            server, "tenant 'one' has other tokens", "tenant 'three' is new",
            "tenant 'two' has no token any more", "there is no token for metrics",
        )  # fmt: skip
        assert [server.send(0, token) for token in (OLD, NEW, OTHER)] == [200, 200, 401]
        sessions = CLIENT.get(f"{server.url}/v1/sessions", headers=bearer(NEW)).json()["sessions"]
        assert [session["session"] for session in sessions] == ["chat-1"]
        reloaded(server, "nothing changed")
        for wrong, why in (
            ("[tokens", "be read"),
            ('[tokens]\none = "short"', "expected 16 or more"),
        ):
            tokens.write_text(wrong, encoding="utf-8")
            reloaded(server, "not reloaded", why)
            assert server.send(0, NEW) == 200
        assert [token for token in (OLD, NEW, OTHER, "short") if token in server.log] == []


def test_events_end_for_who_has_no_token_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the next request alone: they have no end, and told of the session for ever."""
    monkeypatch.setattr(app, "_ALIVE_S", 0.1)
    file = tmp_path / "tokens.toml"
    file.write_text(f'[tokens]\none = "{OLD}"\n', encoding="utf-8")
    with serving(Tenants.from_file(file)) as server:
        url = f"{server.url}/v1/sessions/chat-1/events"
        with CLIENT.stream("GET", url, headers=bearer(OLD)) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: control"
            file.write_text(f'[tokens]\none = "{NEW}"\n', encoding="utf-8")
            server.reload()
            for _ in lines:
                pass


def test_settings_that_need_a_restart_are_named(tmp_path: Path) -> None:
    """By name only: a value may be a password. Ctrl-C lets it finish, which is no failure."""
    file = tmp_path / "loopguard.toml"
    file.write_text("abort_after = 3\n", encoding="utf-8")
    with Serve(tmp_path / "log", "--settings", str(file), "--grpc", "127.0.0.1:0") as server:
        reloaded(server, "nothing changed")
        file.write_text('abort_after = 5\ndigest_key = "a key of all workers"\n', encoding="utf-8")
        reloaded(server, "abort_after applies after a restart", "digest_key applies after")
        assert "a key of all" not in server.log
        file.write_text("abort_after = -1\n", encoding="utf-8")
        reloaded(server, "not reloaded", "abort_after")
        server.tell(signal.SIGINT)
        assert server.process.wait(60) == 0


def test_a_renewed_certificate_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By HTTP and by gRPC, for connections that come after; not with a key that does not fit."""
    certificate, key = certified(tmp_path)

    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=certificate)

    def is_trusted(roots: ssl.SSLContext) -> bool:
        try:
            return httpx.get(f"{server.url}/livez", verify=roots).text == "ok"
        except httpx.ConnectError:
            return False

    def exported() -> None:
        credentials = grpc.ssl_channel_credentials((tmp_path / "certificate.pem").read_bytes())
        with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials) as channel:
            export = channel.unary_unary(SIGNALS["traces"].method)
            export(request(call(0)).SerializeToString(), timeout=60)

    with serving(grpc="127.0.0.1:0", certificate=certificate, key=key) as server:
        old = trusted()
        exported()
        certified(tmp_path)
        assert not is_trusted(trusted())
        server.reload()
        assert is_trusted(trusted())
        assert not is_trusted(old)
        exported()
        (tmp_path / "key.pem").write_text("no key", encoding="utf-8")
        server.reload()
        assert is_trusted(trusted())
    assert any("not reloaded: certificate = " in line for line in caplog.messages)


def test_it_takes_signals_before_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """A service manager may reload what listens since a moment ago."""
    port, to_default = free_port(), list[int]()

    def hang_up_at_once() -> None:
        wait_for(lambda: connects(port))
        os.kill(os.getpid(), signal.SIGHUP)

    async def serve() -> None:
        hung_up = asyncio.create_task(asyncio.to_thread(hang_up_at_once))
        async with Server(ServerSettings(http=f"127.0.0.1:{port}", grpc="")):
            await hung_up
            await asyncio.to_thread(
                wait_for, lambda: to_default or "reloaded: nothing changed" in caplog.text
            )

    before = signal.signal(signal.SIGHUP, lambda number, _: to_default.append(number))
    try:
        with caplog.at_level(logging.WARNING, "otel_loopguard"):
            asyncio.run(serve())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert to_default == []


def connects(port: int) -> bool:
    """True if something listens there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


_IN_A_TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.execv(sys.argv[2], sys.argv[2:])
sys.stdin.read()
os.close(terminal)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    """SIGHUP says that the terminal is gone: nobody reloads from there."""
    log = tmp_path / "log"
    serve = [PROGRAM, "serve", "--http", "127.0.0.1:0", "--grpc", ""]
    command = [sys.executable, "-c", _IN_A_TERMINAL, str(log), *serve]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as terminal:
        wait_for(lambda: log.exists() and "spans go nowhere" in log.read_text(encoding="utf-8"))
        assert terminal.stdin is not None
        terminal.stdin.close()
        assert terminal.wait(60) == 0


def test_it_takes_requests_while_load_balancers_look_elsewhere(tmp_path: Path) -> None:
    with Serve(tmp_path / "log", "--drain", "600") as server:
        server.tell(signal.SIGTERM)
        wait_for(lambda: server.ready() == (503, {"running": "the server is shutting down"}))
        assert server.metric("loopguard_server_ready", loopguard_server_check="running") == 0
        assert server.send() == 200
        server.tell(signal.SIGTERM)  # now
        assert server.process.wait(60) == 0


def test_a_reload_ends_nothing_that_it_still_answers(tmp_path: Path) -> None:
    """As where a terminal is closed: its shell hangs up, too."""
    with ThreadPoolExecutor() as sender, Serve(tmp_path / "log", "--lateness", "3") as server:
        answer = sender.submit(server.send)
        size = "loopguard_server_judging_queue_size"
        wait_for(lambda: server.metric(size) == 1 or answer.done())
        server.tell(signal.SIGTERM)
        wait_for(lambda: not connects(httpx.URL(server.url).port or 0))
        server.tell(signal.SIGHUP)
        assert answer.result() == 200
        assert server.process.wait(60) == 0


@pytest.mark.parametrize("path", ["control?wait=60", "events"])
def test_who_waits_for_the_flag_is_answered_when_it_ends(path: str) -> None:
    """A client that follows the flag always waits; a 500 would be an error of the server."""
    with ThreadPoolExecutor() as asker:
        with serving() as server:
            url = f"{server.url}/v1/sessions/chat-1/{path}"
            answer = asker.submit(httpx.get, url, timeout=60)
            wait_for(lambda: server._api._changes._events)
        assert answer.result().status_code == 200
        assert "allow" in answer.result().text


def test_what_was_begun_is_answered_before_it_ends() -> None:
    """A sender takes an unknown error for final, and drops its spans."""
    body = request(call(0)).SerializeToString()
    with serving(grpc="127.0.0.1:0") as hop, ThreadPoolExecutor() as sender, ExitStack() as channel:
        forward = f"grpc://127.0.0.1:{hop.grpc_port}"
        with serving(grpc="127.0.0.1:0", forward=forward, lateness_s=1) as server:
            answer = sender.submit(channel.enter_context(exporter(server)), body, timeout=60)
            wait_for(lambda: any(each._batch for each in server.engines.values()))
        assert answer.result() is not None
        assert [each.guard.flag_of("chat-1") is not None for each in hop.engines.values()] == [True]


def test_what_it_cannot_answer_any_more_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the next hop hangs."""
    monkeypatch.setattr(server_module, "_GRACE_S", 1)
    body = request(call(0)).SerializeToString()
    with socket.create_server(("127.0.0.1", 0)) as hangs, ThreadPoolExecutor() as sender:
        hop = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        with serving(forward=hop) as server:
            url = f"{server.url}/v1/traces"
            answer = sender.submit(httpx.post, url, content=body, headers=PROTOBUF, timeout=60)
            taken, _ = hangs.accept()
        with taken:
            assert answer.result().status_code == 503


def test_what_people_did_last_is_sent_before_it_ends(
    hop: Hop, tmp_path: Path, own_redis: Redis
) -> None:
    """No request that is sent again tells of it, and no store."""
    key = "a key of all workers"
    stored = {"LOOPGUARD_STORE_URL": own_redis.url, "LOOPGUARD_DIGEST_KEY": key}
    for who, store in {"anna": {}, "ben": stored}.items():
        with Serve(tmp_path / "log", "--forward", hop.url, **store) as server:
            assert server.send() == 200
            url = f"{server.url}/v1/sessions/chat-1/abort"
            assert CLIENT.post(url, json={"by": who}).is_success
            server.tell(signal.SIGTERM)
            assert server.process.wait(60) == 0
            assert not server.logged("log events")
    done = [attributes(one)["loopguard.control.by"] for one in hop.events("loopguard.control")]
    assert done == ["anna", "ben"]


def test_what_people_did_last_is_told_where_it_is_lost(
    hop: Hop, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(forward=hop.url) as server:
        assert send(server, 0).is_success
        hop.answers = [503] * 100
        url = f"{server.url}/v1/sessions/chat-1/abort"
        assert CLIENT.post(url, json={"by": "anna"}).is_success
    (line,) = (one for one in caplog.messages if "log events" in one)
    assert "1 log events" in line
