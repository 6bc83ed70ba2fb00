"""Mailboxes in Redis: every process with a heartbeat is asked, and answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.escalation.admin.client import StoreTransport
from otel_loopguard.escalation.admin.mailbox import Mailboxes
from tests.escalation.agents import stuck, until, watched
from tests.stores.servers import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


@pytest.fixture
def guard(server: Server) -> Iterator[LoopGuard]:
    found = watched(store_url=server.url, tuning={"admin": {"heartbeat_s": 0.2}})
    yield found
    found.shutdown()


def transport(server: Server) -> StoreTransport:
    return StoreTransport(Settings(store_url=server.url))


def sessions(server: Server) -> list[dict[str, Any]]:
    return transport(server).sessions()[0]


def replies(server: Server, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The replies of those who know of it, asked again while a busy process is not heard."""

    def heard() -> list[dict[str, Any]]:
        with suppress(LoopGuardError):
            return transport(server).ask(request)
        return []

    return until(heard)


def test_nothing_of_a_session_is_in_the_store(guard: LoopGuard, server: Server) -> None:
    """A process writes its heartbeat there, and what it was asked for."""
    for number in range(50):
        stuck(guard, f"run-{number}", calls=1)
    until(lambda: server.client.zcard("loopguard:desk"))

    def calls(command: str) -> int:
        found = server.client.info("commandstats").get(f"cmdstat_{command}", {})
        return found.get("calls", 0)

    server.client.config_resetstat()
    until(lambda: calls("zadd") >= 2)
    assert (calls("hset"), calls("rpush")) == (0, 0)
    assert len(server.client.keys("loopguard:desk*")) == 1


def test_a_process_that_ends(guard: LoopGuard, server: Server) -> None:
    """Shut down, it is out of the directory soon; all of its keys go by themselves anyway."""
    stuck(guard, "a")
    until(lambda: sessions(server))
    keys = server.client.keys("loopguard:desk*")
    assert keys
    assert all(server.client.ttl(key) > 0 for key in keys)
    guard.shutdown()
    until(lambda: not sessions(server))
    until(lambda: not server.client.keys("loopguard:desk:*"))


def test_a_killed_process_is_forgotten(guard: LoopGuard, server: Server) -> None:
    """Until three heartbeats are missing it is waited for; the replies of others count."""
    boxes = Mailboxes(Settings(store_url=server.url, tuning={"admin": {"heartbeat_s": 0.1}}))
    stuck(guard, "a", calls=1)
    until(boxes.processes)
    boxes.register("dead")
    rows, note = transport(server).sessions()
    assert ([row["session"] for row in rows], note) == (
        ["a"], "1 of 2 processes gave no reply within 5 s",
    )  # fmt: skip
    boxes.register("dead")
    with pytest.raises(LoopGuardError, match="1 of 2 processes gave no reply"):
        transport(server).ask({"op": "show", "session": "nobody"})
    server.client.zadd("loopguard:desk", {"dead": time.time() * 1000 - 60_000})
    assert transport(server).ask({"op": "show", "session": "nobody"}) == []
    boxes.close()


def test_redis_comes_back(guard: LoopGuard, server: Server) -> None:
    """Everything is said anew, and orders are taken again; nobody was held."""
    stuck(guard, "a", calls=1)
    until(lambda: sessions(server))
    server.kill()
    stuck(guard, "b", calls=1)
    server.start()
    until(lambda: {row["session"] for row in sessions(server)} == {"a", "b"}, limit_s=40)
    assert replies(server, {"op": "abort", "session": "b"})[0]["ok"]


@pytest.mark.parametrize(
    "letter",
    [b"", b"{", b"[]", b'{"op": "abort"}', b'{"op": "abort", "reply_to": 3}', b"x" * 100_000],
    ids=["empty", "cut", "list", "nowhere", "number", "huge"],
)
def test_garbage_in_the_letter_box(guard: LoopGuard, server: Server, letter: bytes) -> None:
    """Is passed over; the next letter is answered."""
    stuck(guard, "a", calls=1)
    rows = until(lambda: sessions(server))
    server.client.rpush(f"loopguard:desk:{{{rows[0]['process']}}}:in", letter)
    (reply,) = replies(server, {"op": "abort", "session": "a"})
    assert reply["ok"]
    assert guard.faults.counts == {}


@pytest.mark.parametrize("reply", [b"{", b"[]", b'{"sessions": [{"session": 3}, 7]}'], ids=repr)
def test_garbage_in_place_of_a_reply(
    guard: LoopGuard, server: Server, reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no row of a session is left out."""
    stuck(guard, "a", calls=1)
    until(lambda: sessions(server))
    monkeypatch.setattr("otel_loopguard.escalation.admin.mailbox.secrets.token_hex", lambda _: "x")
    server.client.rpush("loopguard:desk:reply:{x}", reply)
    until(lambda: server.client.zadd("loopguard:desk", {"other": time.time() * 1000}))
    assert [row["session"] for row in sessions(server)] == ["a"]
