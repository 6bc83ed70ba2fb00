"""What the operator of a server is told: log lines, probes, and the same in metrics."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.server import Tenants
from otel_loopguard.server import metrics as server_metrics
from tests.server.process import PROGRAM, Serve, ready
from tests.server.serving import (
    CLIENT,
    PROTOBUF,
    Hop,
    bearer,
    call,
    certified,
    post,
    request,
    send,
    serving,
)
from tests.stores.servers import Server as Redis
from tests.stores.servers import free_port, wait_for

ONE = Tenants({"a token of sixteen signs or more": "one"})
READY = "loopguard_server_ready"
REFUSED = "loopguard_server_refusals_total"
STORE = "loopguard_store_status"


def said(caplog: pytest.LogCaptureFixture, start: str) -> list[str]:
    """The lines of the log that begin so."""
    return [one for one in caplog.messages if one.startswith(f"otel-loopguard: {start}")]


@pytest.mark.parametrize(
    ("cause", "why", "code", "given"),
    [
        ("next_hop", "the next hop cannot be reached", 503, {"forward": "http://127.0.0.1:1"}),
        ("token", "no valid token came with a request of 127.0.0.1", 401, {"tenants": ONE}),
        ("too_large", "the body has more than 9 bytes", 413, {"most_bytes": 9}),
    ],
)
def test_a_cause_of_refusals_is_told_once_and_at_its_end(  # noqa: PLR0917
    cause: str, why: str, code: int, given: dict[str, Any],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with serving(**given) as server:
        assert {send(server, 0).status_code for _ in range(3)} == {code}
        (line,) = said(caplog, "requests are refused: ")
        assert why in line
        assert not said(caplog, "over for")
        monkeypatch.setattr(server_metrics, "QUIET_S", 0)
        wait_for(lambda: said(caplog, "over for 0 s: requests are refused"))
    (line,) = said(caplog, "over for 0 s: requests are refused")
    assert re.search(rf"{why}.* \({cause}, 3 times within \d+ s\)", line)


def test_a_variable_that_is_unknown_is_told(tmp_path: Path) -> None:
    """Else it guards in another way than its operator thinks."""
    with Serve(tmp_path / "log", LOOPGUARD_MOED="shadow") as server:
        assert server.logged("unknown setting", "LOOPGUARD_MOED (is LOOPGUARD_MODE meant?)")


@pytest.mark.parametrize(
    ("host", "code", "why"),
    [("127.0.0.1", 1, "in use"), ("192.0.2.1", 2, "cannot listen there")],
)
@pytest.mark.parametrize("option", ["http", "grpc"])
def test_an_address_in_use_is_no_bad_setting(option: str, host: str, code: int, why: str) -> None:
    """It is worth another start, which the unit of systemd leaves out after a 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"http": "127.0.0.1:0", "grpc": "", option: f"{host}:{taken.getsockname()[1]}"}
        command = [PROGRAM, "serve", *(f"--{name}={value}" for name, value in given.items())]
        token = {**os.environ, "LOOPGUARD_SERVE_TOKEN": "a token of sixteen signs or more"}
        ended = subprocess.run(command, env=token, capture_output=True, text=True, check=False)
    (line,) = (one for one in ended.stderr.splitlines() if "otel-loopguard:" in one)
    assert ended.returncode == code
    assert f"{option} = " in line
    assert why in line


def test_a_store_that_is_gone_is_told_and_the_server_is_not_ready(tmp_path: Path) -> None:
    """Each leaves a line in the log, a metric, and the answer of `/readyz`: with real processes."""
    redis = Redis(tmp_path / "redis")
    store = {
        "LOOPGUARD_STORE_URL": redis.url,
        "LOOPGUARD_DIGEST_KEY": "a key of all workers",
        "LOOPGUARD_TUNING__STORES__TIMEOUT_S": "0.5",
    }
    with Serve(tmp_path / "log", **store) as server:

        def is_gone(reason: str = "") -> None:
            wait_for(lambda: server.ready()[0] == 503)
            assert set(server.ready()[1]) == {"store"}
            wait_for(lambda: server.metric(READY, loopguard_server_check="store") == 0)
            pings = {"db_operation_name": "ping", "error_type": reason}
            calls = "loopguard_store_operation_duration_seconds_count"
            # A span that is in flight may be the first to find it gone.
            wait_for(lambda: not reason or server.metric(calls, **pings) >= 1)

        def is_back(number: int) -> None:
            wait_for(lambda: server.ready() == (200, {}))
            wait_for(lambda: server.send(number) == 200)

        is_gone()  # it is not there yet
        redis.start()
        is_back(0)
        redis.freeze()
        is_gone("slow")
        # And no address, for everybody may ask.
        assert server.ready()[1] == {"store": "the store does not answer; the log says why"}
        span = request(call(1)).SerializeToString()
        refused = CLIENT.post(f"{server.url}/v1/traces", content=span, headers=PROTOBUF)
        assert (refused.status_code, b"redis://" in refused.content) == (503, False)
        assert server.metric(REFUSED, error_type="store") >= 1
        redis.thaw()
        is_back(1)
        # Both answer reads, and no request can be stored.
        for reason, (begin, end) in {
            "full": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
            "read_only": (f"REPLICAOF 127.0.0.1 {free_port()}", "REPLICAOF NO ONE"),
        }.items():
            redis.client.execute_command(begin)
            is_gone(reason)
            redis.client.execute_command(end)
            is_back(2)
        redis.kill()
        is_gone("down")
        wait_for(lambda: server.metric(STORE, loopguard_store_state="unavailable") == 1)
        redis.start()
        is_back(3)
        wait_for(lambda: server.metric(STORE, loopguard_store_state="available") == 1)
        wait_for(lambda: bool(server.logged("the store is healthy again")))
        wait_for(lambda: bool(server.logged("other processes are heard again")))
        assert server.metric(READY, loopguard_server_check="store") == 1
        leases = {"taken": 1, "taken_over": 0, "lost": 0}
        for change, count in leases.items():
            name = "loopguard_server_leases_total"
            assert server.metric(name, loopguard_server_lease=change) == count
        assert len(server.logged("not ready: the store does not answer: redis://", "(store")) == 1
        assert len(server.logged("requests are refused: the store does not answer: redis://")) == 1
        redis.kill()


def test_a_breaker_of_a_tenant_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    told = {"error.type": "ConnectionError", "gen_ai.tool.call.result": "connection refused"}
    failing = {**call(0)["attributes"], **told}
    with serving(ONE, guard=Settings(breaker="session")) as server:
        spans = (call(number, attributes=failing) for number in range(3))
        assert post(server, *spans, **bearer("a token of sixteen signs or more")).is_success
        wait_for(lambda: said(caplog, "one: breaker of "))


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_next_hop_whose_certificate_is_not_trusted_says_so_in_the_log(
    scheme: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = certified(tmp_path)
    own = {"certificate": certificate, "key": key}
    with serving(ONE, **own, grpc="127.0.0.1:0") as hop:
        port = hop.grpc_port if scheme == "grpcs" else hop.url.rpartition(":")[2]
        with serving(forward=f"{scheme}://127.0.0.1:{port}") as server:
            refused = send(server, 0)
            assert (refused.status_code, b"CERTIFICATE" in refused.content) == (503, False)
            assert b"CERTIFICATE" not in CLIENT.get(f"{server.url}/readyz").content
            for start in ("requests are refused: ", "not ready: "):
                wait_for(lambda start=start: "CERTIFICATE_VERIFY" in "".join(said(caplog, start)))


def test_what_a_person_did_is_logged_with_the_name(tmp_path: Path) -> None:
    """And what was asked of nobody says so."""
    with Serve(tmp_path / "log") as server:
        assert server.send() == 200
        asked = f"{server.url}/v1/sessions/chat-1"
        told = {"by": "anna", "reason": "let me look"}
        wait_for(lambda: CLIENT.post(f"{asked}/pause", json=told).status_code == 200)
        wait_for(lambda: bool(server.logged("chat-1", "anna", "pause", "let me look")))
        answer = CLIENT.post(f"{asked}/answer", json={"answer": "continue"})
        assert (answer.status_code, "'chat-1'" in answer.json()["detail"]) == (404, True)


def test_a_next_hop_that_freezes_dies_and_comes_back(tmp_path: Path) -> None:
    """The same with the next hop, which is another server."""
    address = f"127.0.0.1:{free_port()}"
    forward = ("--forward", f"http://{address}")
    with Serve(tmp_path / "log", *forward) as server:
        with Serve(tmp_path / "hop-1", http=address) as hop:
            wait_for(lambda: server.ready() == (200, {}))
            assert server.send(0) == 200
            hop.tell(signal.SIGSTOP)
            wait_for(lambda: server.ready()[0] == 503)
            assert server.ready()[1] == {"next_hop": "the next hop did not answer within 2 s"}
            assert server.metric(READY, loopguard_server_check="next_hop") == 0
            wait_for(lambda: server.logged("not ready: the next hop did not answer", "(next_hop"))
            hop.tell(signal.SIGCONT)
            wait_for(lambda: server.ready() == (200, {}))
        assert server.send(1) == 503
        assert server.metric(REFUSED, error_type="next_hop") == 1
        wait_for(lambda: server.logged("requests are refused: the next hop cannot be reached"))
        sent = "loopguard_server_forward_duration_seconds_count"
        of_spans = {"loopguard_server_signal": "traces"}
        assert server.metric(sent, **of_spans, error_type="ConnectError") >= 1
        wait_for(lambda: "cannot be reached" in server.ready()[1].get("next_hop", ""))
        with Serve(tmp_path / "hop-2", http=address):
            wait_for(lambda: server.ready() == (200, {}))
            assert server.send(1) == 200
            assert server.metric(READY, loopguard_server_check="next_hop") == 1


def test_its_log_has_no_more_of_the_next_hop_than_its_place(tmp_path: Path) -> None:
    with Serve(tmp_path / "log", "--forward", "http://me@[::1]:1/hunter2?key=hunter2") as server:
        assert server.logged("spans go on to http://[::1]:1")
        assert "hunter2" not in server.log


def test_it_is_ready_once_its_next_hop_answers(
    hop: Hop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token, as orchestrators ask.

    It is asked again until it is well, also before the first request: else a metric would tell of
    the last one for days.
    """
    monkeypatch.setattr("otel_loopguard.server.app._IDLE_S", 0)
    hop.answers = [503]
    with serving(ONE, forward=hop.url) as server:
        wait_for(lambda: said(caplog, "not ready: the next hop answered 503 (next_hop"))
        known = server._readiness.known
        wait_for(lambda: known()["next_hop"] == "ok")
        hop.answers = [400]  # many take no empty request
        wait_for(lambda: not hop.answers or ready(server)[0] == 503)
        assert ready(server)[0] == 200
        hop.answers = [503] * 100
        wait_for(lambda: ready(server) == (503, {"next_hop": "the next hop answered 503"}))
        hop.answers = []
        wait_for(lambda: ready(server)[0] == 200)


def test_it_is_not_ready_while_it_cannot_judge(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too much waits, whose senders were told to come again a moment ago; or nothing is judged."""
    with serving() as server:
        wait_for(lambda: ready(server) == (200, {}))
        server._refusals.note("busy", "20,000 spans wait")
        assert ready(server) == (503, {"queue": "20,000 spans wait"})
        monkeypatch.setattr("otel_loopguard.server.app._RECENT_S", 0)
        wait_for(lambda: ready(server) == (200, {}))
        monkeypatch.setattr("otel_loopguard.server.app._SILENT_S", -1)
        assert ready(server) == (503, {"judging": "nothing was judged for -1 s"})
        for path in ("/livez", "/healthz"):
            assert CLIENT.get(server.url + path).text == "ok"
    (line,) = said(caplog, "the server ends: requests are refused")
    assert "(busy, once)" in line
