"""The directory in Redis: which sessions each process has, and a letter box for each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_loopguard import Action, LoopGuard, Settings, control, session
from otel_loopguard.core import Kind, Step
from otel_loopguard.escalation.admin.client import StoreTransport
from otel_loopguard.escalation.admin.redis_transport import ProcessRegistry
from tests.escalation.agents import asked, stuck, until, watched
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


def test_sessions_and_orders(guard: LoopGuard, server: Server) -> None:
    """A session is listed soon, follows what happens, and takes orders."""
    stuck(guard, "run {1}:ä", calls=1)
    until(lambda: [row["action"] for row in transport(server).sessions()] == ["allow"])
    stuck(guard, "run {1}:ä", calls=3)
    until(lambda: [row["action"] for row in transport(server).sessions()] == ["pause"])
    (row,) = transport(server).sessions()
    assert row["escalation"] == asked(guard)[0].id
    (reply,) = transport(server).ask({"op": "resume", "session": "run {1}:ä", "by": "anna"})
    assert (reply["ok"], reply["action"]) == (True, "allow")
    assert transport(server).ask({"op": "resume", "session": "nobody"}) == []
    (view,) = transport(server).ask({"op": "show", "session": "run {1}:ä"})
    assert view["session"]["totals"]["actions"] == 4
    assert b"secret" not in b"".join(
        value
        for key in server.client.keys("loopguard:desk*")
        if server.client.type(key) == b"hash"
        for value in server.client.hvals(key)
    )


def test_answers(guard: LoopGuard, server: Server) -> None:
    """By the id of the escalation; twice is refused, an unknown one is nobody's."""
    stuck(guard, "a")
    found = asked(guard)[0].id
    request = {"op": "answer", "escalation": found, "answer": "skip_task", "by": "anna"}
    until(lambda: any(reply["ok"] for reply in transport(server).ask(request)))
    assert guard.flag_of("a").control.by == "anna"
    until(lambda: transport(server).ask(request))
    (late,) = transport(server).ask(request)
    assert (late["error"], "anna answered skip_task" in late["message"]) == ("refused", True)
    assert transport(server).ask({**request, "escalation": "nope"}) == []


def test_only_what_changed_is_sent(guard: LoopGuard, server: Server) -> None:
    """A session at rest costs no write but the heartbeat's."""
    for number in range(50):
        stuck(guard, f"run-{number}", calls=1)
    until(lambda: len(transport(server).sessions()) == 50)

    def calls(command: str) -> int:
        found = server.client.info("commandstats").get(f"cmdstat_{command}", {})
        return found.get("calls", 0)

    for _ in range(2):  # the first round may hold what changed last
        server.client.config_resetstat()
        until(lambda: calls("zadd") >= 2)
    assert calls("hset") == 0


def test_a_process_that_ends(guard: LoopGuard, server: Server) -> None:
    """Shut down, it is out of the directory soon; all of its keys go by themselves anyway."""
    stuck(guard, "a")
    until(lambda: transport(server).sessions())
    keys = server.client.keys("loopguard:desk*")
    assert keys
    assert all(server.client.ttl(key) > 0 for key in keys)
    guard.shutdown()
    until(lambda: not transport(server).sessions())
    until(lambda: not server.client.keys("loopguard:desk:*"))


def test_a_killed_process_is_forgotten(server: Server) -> None:
    """What was not heard of for three heartbeats is not there."""
    directory = ProcessRegistry(
        Settings(store_url=server.url, tuning={"admin": {"heartbeat_s": 0.1}})
    )
    directory.publish("dead", {"a": b'{"session": "a", "process": "dead", "action": "allow"}'}, [])
    assert directory.processes() == ["dead"]
    assert [row["session"] for row in directory.sessions()] == ["a"]
    server.client.zadd("loopguard:desk", {"dead": time.time() * 1000 - 60_000})
    assert directory.processes() == []
    assert list(directory.sessions()) == []
    directory.close()


def test_a_gate_is_opened_from_outside(guard: LoopGuard, server: Server) -> None:
    """At once: nobody polls for it."""
    stuck(guard, "a")
    until(lambda: transport(server).sessions())
    passed: list[Action] = []

    def agent() -> None:
        with session("a"):
            passed.append(control.gate().control.action)

    thread = threading.Thread(target=agent)
    thread.start()
    asked = {"op": "resume", "session": "a", "guidance": "use B", "by": "anna"}
    assert transport(server).ask(asked)[0]["ok"]
    thread.join(60)
    assert not thread.is_alive()
    assert passed == [Action.HINT]


def test_redis_comes_back(guard: LoopGuard, server: Server) -> None:
    """Everything is said anew, and orders are taken again; nobody was held."""
    stuck(guard, "a", calls=1)
    until(lambda: transport(server).sessions())
    server.kill()
    stuck(guard, "b", calls=1)
    server.start()
    until(
        lambda: {row["session"] for row in transport(server).sessions()} == {"a", "b"}, limit_s=40
    )
    assert transport(server).ask({"op": "abort", "session": "b"})[0]["ok"]


@pytest.mark.parametrize(
    "letter",
    [b"", b"{", b"[]", b'{"op": "abort"}', b'{"op": "abort", "reply_to": 3}', b"x" * 100_000],
    ids=["empty", "cut", "list", "nowhere", "number", "huge"],
)
def test_garbage_in_the_letter_box(guard: LoopGuard, server: Server, letter: bytes) -> None:
    """Is passed over; the next letter is answered."""
    stuck(guard, "a", calls=1)
    until(lambda: transport(server).sessions())
    (process,) = ProcessRegistry(guard.settings).processes()
    server.client.rpush(f"loopguard:desk:{{{process}}}:in", letter)
    (reply,) = transport(server).ask({"op": "abort", "session": "a"})
    assert reply["ok"]
    assert guard.faults.counts == {}


def test_garbage_in_the_directory(guard: LoopGuard, server: Server) -> None:
    """What is no row of a session is left out."""
    stuck(guard, "a", calls=1)
    until(lambda: transport(server).sessions())
    (process,) = ProcessRegistry(guard.settings).processes()
    rows = {b"x": b"{", b"y": b"[]", b"z": json.dumps({"session": 3}).encode()}
    server.client.hset(f"loopguard:desk:{{{process}}}", mapping=rows)
    assert [row["session"] for row in transport(server).sessions()] == ["a"]


def test_many_sessions(server: Server) -> None:
    """A thousand of one process: listed, and within the bound."""
    guard = watched(store_url=server.url, tuning={"admin": {"sessions": 1000, "heartbeat_s": 0.2}})
    for number in range(1200):
        guard.observe(Step(Kind.TOOL, "t", args={"n": number}, outcome="x"), f"run-{number}")
    until(lambda: len(transport(server).sessions()) == 1000)
    guard.shutdown()
