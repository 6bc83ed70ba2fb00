"""What the operator of a server is told: log lines, and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from otel_loopguard import Settings
from otel_loopguard.server import Tenants, refusals
from tests.server.serving import PROTOBUF, Hop, call, request, serving
from tests.stores.servers import Server as Redis
from tests.stores.servers import free_port, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from otel_loopguard.server import Server

GOOD = request(call(0)).SerializeToString()
TOKEN = "a token of sixteen signs or more"


def send(server: Server, times: int = 3) -> set[int]:
    """Sends a span as often; returns the status codes."""
    url = f"{server.url}/v1/traces"
    return {httpx.post(url, content=GOOD, headers=PROTOBUF).status_code for _ in range(times)}


def said(caplog: pytest.LogCaptureFixture, start: str) -> list[str]:
    """What the log says about refusals."""
    return [one for one in caplog.messages if one.startswith(f"otel-loopguard: {start}")]


@pytest.mark.parametrize(
    ("why", "code", "given"),
    [
        ("the next hop cannot be reached", 503, {"forward": "http://127.0.0.1:1"}),
        (
            "no valid token came with a request of 127.0.0.1",
            401,
            {"tenants": Tenants({TOKEN: "one"})},
        ),
        ("the body has more than 9 bytes", 413, {"most_bytes": 9}),
    ],
)
def test_a_cause_of_refusals_is_told_once_and_at_its_end(
    why: str, code: int, given: dict[str, Any],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with serving(**given) as server:
        assert send(server) == {code}
        (line,) = said(caplog, "requests are refused: ")
        assert why in line
        assert not said(caplog, "not refused for")
        monkeypatch.setattr(refusals, "QUIET_S", 0)
        wait_for(lambda: said(caplog, "not refused for"))
    assert "after 3 times" in said(caplog, "not refused for")[0]


def test_a_store_that_is_gone_is_told_and_the_server_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also before anything was sent, and when it is frozen later."""
    port = free_port()
    redis = Redis(tmp_path / "redis", port=port)
    guard = Settings(store_url=redis.url, digest_key="a key of all workers", store_timeout_s=0.5)
    with serving(guard=guard) as server:
        wait_for(lambda: said(caplog, "requests are refused: the store does not answer"))
        assert ready(server) == (503, {"judging": True, "store": False})
        redis.start()
        wait_for(lambda: ready(server) == (200, {"judging": True, "store": True}))
        redis.freeze()
        wait_for(lambda: ready(server) == (503, {"judging": True, "store": False}))
        redis.thaw()
        wait_for(lambda: ready(server)[0] == 200)
        assert len(said(caplog, "requests are refused: ")) == 1
        redis.kill()


def test_it_is_ready_once_its_next_hop_answers(hop: tuple[Hop, str]) -> None:
    """Without a token, as orchestrators ask."""
    taken, url = hop
    with serving(Tenants({TOKEN: "one"}), forward=url) as server:
        wait_for(lambda: ready(server) == (200, {"judging": True, "next_hop": True}))
        taken.answers = [400]  # many take no empty request
        wait_for(lambda: not taken.answers or ready(server)[0] == 503)
        assert ready(server)[0] == 200
        taken.answers = [503] * 100
        wait_for(lambda: ready(server) == (503, {"judging": True, "next_hop": False}))
        taken.answers = []
        wait_for(lambda: ready(server)[0] == 200)


def test_it_is_not_ready_while_nothing_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        wait_for(lambda: ready(server) == (200, {"judging": True}))
        monkeypatch.setattr("otel_loopguard.server.readiness._LATE_S", -1)
        assert ready(server) == (503, {"judging": False})
        for path in ("/livez", "/healthz"):
            assert httpx.get(server.url + path).text == "ok"


def ready(server: Server) -> tuple[int, dict[str, bool]]:
    """What it answers to an orchestrator."""
    answer = httpx.get(f"{server.url}/readyz")
    return answer.status_code, answer.json()
