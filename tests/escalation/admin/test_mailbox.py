"""Mailboxes in Redis: every process with a heartbeat is asked, and answers."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardError, Settings
from otel_loopguard.escalation import protocol
from otel_loopguard.escalation.mailbox import Mailboxes, StoreTransport
from tests.escalation.agents import stuck, until, watched
from tests.stores.servers import Server


@pytest.fixture
def guard(own_redis: Server) -> Iterator[LoopGuard]:
    found = watched(store_url=own_redis.url, tuning={"admin": {"heartbeat_s": 0.2}})
    yield found
    found.shutdown()


def transport(own_redis: Server) -> StoreTransport:
    return StoreTransport(Settings(store_url=own_redis.url))


def sessions(own_redis: Server) -> list[dict[str, Any]]:
    return transport(own_redis).sessions()[0]


def replies(own_redis: Server, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The replies of those who know of it, asked again while a busy process is not heard."""

    def heard() -> list[dict[str, Any]]:
        with suppress(LoopGuardError):
            return transport(own_redis).ask(request)
        return []

    return until(heard)


def test_nothing_of_a_session_is_in_the_store(guard: LoopGuard, own_redis: Server) -> None:
    """A process writes its heartbeat there, and what it was asked for."""
    for number in range(50):
        stuck(guard, f"run-{number}", calls=1)
    until(lambda: own_redis.client.zcard("loopguard:desk"))

    def calls(command: str) -> int:
        found = own_redis.client.info("commandstats").get(f"cmdstat_{command}", {})
        return found.get("calls", 0)

    own_redis.client.config_resetstat()
    until(lambda: calls("zadd") >= 2)
    assert (calls("hset"), calls("rpush")) == (0, 0)
    assert len(own_redis.client.keys("loopguard:desk*")) == 1


def test_a_process_that_ends(guard: LoopGuard, own_redis: Server) -> None:
    """Shut down, it is out of the directory soon; all of its keys go by themselves anyway."""
    stuck(guard, "a")
    until(lambda: sessions(own_redis))
    keys = own_redis.client.keys("loopguard:desk*")
    assert keys
    assert all(own_redis.client.ttl(key) > 0 for key in keys)
    guard.shutdown()
    until(lambda: not sessions(own_redis))
    until(lambda: not own_redis.client.keys("loopguard:desk:*"))


def test_a_killed_process_is_forgotten(
    guard: LoopGuard, own_redis: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until three heartbeats are missing it is waited for; the replies of others count."""
    boxes = Mailboxes(Settings(store_url=own_redis.url, tuning={"admin": {"heartbeat_s": 0.1}}))
    stuck(guard, "a", calls=1)
    until(boxes.processes)
    boxes.register("dead")
    rows, note = transport(own_redis).sessions()
    assert ([row["session"] for row in rows], note) == (
        ["a"], "1 of 2 processes gave no reply within 5 s",
    )  # fmt: skip
    boxes.register("dead")
    with monkeypatch.context() as soon:
        # A busy machine may not hear of the other one in so little time, either.
        soon.setattr(protocol, "REPLY_S", 0.2)
        with pytest.raises(LoopGuardError, match=r"[12] of 2 processes gave no reply"):
            transport(own_redis).ask({"op": "show", "session": "nobody"})
    own_redis.client.zadd("loopguard:desk", {"dead": time.time() * 1000 - 60_000})
    assert transport(own_redis).ask({"op": "show", "session": "nobody"}) == []
    boxes.close()


def test_redis_comes_back(guard: LoopGuard, own_redis: Server) -> None:
    """Everything is said anew, and orders are taken again; nobody was held."""
    stuck(guard, "a", calls=1)
    until(lambda: sessions(own_redis))
    own_redis.kill()
    stuck(guard, "b", calls=1)
    own_redis.start()
    until(lambda: {row["session"] for row in sessions(own_redis)} == {"a", "b"}, limit_s=40)
    assert replies(own_redis, {"op": "abort", "session": "b"})[0]["ok"]


@pytest.mark.parametrize(
    "letter",
    [b"", b"{", b"[]", b'{"op": "abort"}', b'{"op": "abort", "reply_to": 3}', b"x" * 100_000],
    ids=["empty", "cut", "list", "nowhere", "number", "huge"],
)
def test_garbage_in_the_letter_box(guard: LoopGuard, own_redis: Server, letter: bytes) -> None:
    """Is passed over; the next letter is answered."""
    stuck(guard, "a", calls=1)
    rows = until(lambda: sessions(own_redis))
    own_redis.client.rpush(f"loopguard:desk:{{{rows[0]['process']}}}:in", letter)
    (reply,) = replies(own_redis, {"op": "abort", "session": "a"})
    assert reply["ok"]
    assert guard.faults.counts == {}


@pytest.mark.parametrize("reply", [b"{", b"[]", b'{"sessions": [{"session": 3}, 7]}'], ids=repr)
def test_garbage_in_place_of_a_reply(
    guard: LoopGuard, own_redis: Server, reply: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no row of a session is left out."""
    stuck(guard, "a", calls=1)
    until(lambda: sessions(own_redis))
    monkeypatch.setattr("otel_loopguard.escalation.mailbox.secrets.token_hex", lambda _: "x")
    own_redis.client.rpush("loopguard:desk:reply:{x}", reply)
    until(lambda: own_redis.client.zadd("loopguard:desk", {"other": time.time() * 1000}))
    assert [row["session"] for row in sessions(own_redis)] == ["a"]
