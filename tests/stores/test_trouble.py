"""Real Redis servers in trouble: frozen, killed, full, read-only, old, locked, misused."""

import logging
import os
import threading
import time
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.redis import RedisStore
from tests.stores.conftest import Start, Write
from tests.stores.servers import Server, free_port, wait_for


def test_nobody_waits_for_a_frozen_server(start: Start, write: Write) -> None:
    """What comes is queued, the state is seen, and all is stored when it goes on."""
    server = start()
    writer = write(server.url, queue=100_000, timeout_s=0.2)
    assert writer.append("s", [("healthy", b"x")])
    assert writer.flush(60)
    assert writer.state == "healthy"
    server.freeze()
    for number in range(5000):
        assert writer.append("s", [(f"{number}", b"x" * 100)])
    wait_for(lambda: writer.state == "slow")
    assert writer.waiting >= 5000
    server.thaw()
    assert writer.flush(60)
    assert writer.stored == 5001
    assert [entry for entry, _ in writer.store.journal("s")] == [
        f"{number}" for number in range(4000, 5000)
    ]


def test_a_killed_server_comes_back_with_all(start: Start, write: Write) -> None:
    """Every acknowledged entry is there, none twice; what was written meanwhile too (E8)."""
    server = start("--appendonly", "yes")
    writer = write(server.url, queue=100_000, batch=50)
    down, done = threading.Event(), threading.Event()

    def work() -> None:
        for step in range(100):
            if step == 50:
                assert down.wait(60)
            for session in range(50):
                writer.append(f"s{session}", [(f"p:{step}", b"%d" % step)])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: writer.stored > 1000)
    server.kill()
    down.set()
    wait_for(lambda: writer.state == "down")
    acknowledged = writer.stored
    server.start()
    thread.join()
    assert done.is_set()
    assert writer.flush(60)
    assert 1000 < acknowledged < 5000
    assert writer.stored == 5000
    assert (writer.dropped, writer.refused) == (0, 0)
    for session in range(50):
        found = writer.store.journal(f"s{session}")
        assert found == [(f"p:{step}", b"%d" % step) for step in range(100)]


def test_a_subscription_goes_on_after_an_outage(
    start: Start, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """As before there is a server: it connects by itself and logs each outage once."""
    server = start()
    server.kill()
    store = write(server.url).store
    heard: list[bytes] = []
    joined: list[bool] = []
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        subscription = store.subscribe("t", heard.append, lambda: joined.append(True))
        for number in (1, 2):
            wait_for(lambda number=number: caplog.text.count("are not heard") == number)
            server.start()
            wait_for(lambda number=number: len(joined) == number)
            if number == 1:
                time.sleep(0.2)  # longer than `retry_s`: the next outage is another one
                server.kill()
    store.publish("t", b"after")
    wait_for(lambda: heard == [b"after"])
    assert caplog.text.count("are not heard") == 2
    assert caplog.text.count("are heard again") == 2
    subscription.close()


def test_a_full_server_is_waited_for(start: Start, write: Write) -> None:
    """`maxmemory` with noeviction: nothing is lost, and it goes on once there is room."""
    server = start("--maxmemory-policy", "noeviction")
    server.client.config_set("maxmemory", 1)
    writer = write(server.url)
    writer.append("s", [("a", b"1")])
    writer.add_records("t", lambda: [b"x"])
    wait_for(lambda: writer.state == "full")
    assert writer.waiting == 2
    assert "OOM" in writer.why or "maxmemory" in writer.why
    with pytest.raises(StoreError, match=r"OOM|maxmemory"):
        writer.store.ping()
    server.client.config_set("maxmemory", 0)
    assert writer.flush(60)
    assert writer.state == "healthy"
    assert writer.store.journal("s") == [("a", b"1")]


def test_a_read_only_replica_is_waited_for(start: Start, write: Write) -> None:
    """Reads go on; writes are stored once it is a master."""
    master = start()
    replica = start("--replicaof", "127.0.0.1", str(master.port))
    master.client.execute_command("SET", "loopguard:control:{k}", b"\x01old")
    wait_for(lambda: replica.client.get("loopguard:control:{k}"))
    writer = write(replica.url)
    writer.put("control", "k", b"new")
    wait_for(lambda: writer.state == "read_only")
    assert writer.store.get("control", "k") == b"old"
    assert writer.state == "read_only"
    replica.client.replicaof("NO", "ONE")
    assert writer.flush(60)
    assert writer.store.get("control", "k") == b"new"


def test_a_wrong_password_is_told_once(
    start: Start, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the password in the message; with the right one, all that waited is stored."""
    server = start("--requirepass", "right")
    writer = write(f"redis://:wr0ng@127.0.0.1:{server.port}/0")
    writer.append("s", [("a", b"1")])
    wait_for(lambda: writer.retries >= 2)
    assert writer.state == "down"
    assert "wr0ng" not in caplog.text
    assert caplog.text.count("the store is down") == 1
    assert f"127.0.0.1:{server.port}" in caplog.text
    right = write(f"redis://:right@127.0.0.1:{server.port}/0")
    right.append("s", [("b", b"1")])
    assert right.flush(60)
    assert right.store.journal("s") == [("b", b"1")]


def test_where_no_server_can_be_used_it_is_told(write: Write) -> None:
    """By its address. Writes wait."""
    port = free_port()
    writer = write(f"redis://127.0.0.1:{port}/0")
    assert writer.append("s", [("a", b"1")])
    wait_for(lambda: writer.state == "down")
    assert f"127.0.0.1:{port}" in writer.why
    with pytest.raises(StoreError, match=f"127.0.0.1:{port}") as error:
        writer.store.ping()
    assert error.value.reason == "down"


APPEND, PUT = ("append", "k", [("a", b"1")]), ("put", "preference", "k", b"1")
MISUSED: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "a list for a profile": ("RPUSH", "tool_profile:{k} mine", ("add_records", "k", [b"x"])),
    "a string for a journal": ("SET", "{k}:journal mine", APPEND),
    "a stream of somebody else": ("XADD", "{k}:journal * one 1 two 2", APPEND),
    "a string for the ids": ("SET", "{k}:ids:2 mine", APPEND),
    "a hash for a value": ("HSET", "preference:{k} one 1", PUT),
    "a value of somebody else": ("SET", 'preference:{k} {"mine":1}', PUT),
    "a value of a later version": ("SET", "preference:{k} \x02new", PUT),
    "a list for a claim": ("RPUSH", "breaker:{k}:claim mine", ("claim", "breaker", "k", "me", 5)),
}


@pytest.mark.parametrize("case", MISUSED)
def test_what_is_not_understood_is_left_as_it_is(
    start: Start, write: Write, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reads take it as missing, writes are refused; it is not changed and gets no end."""
    command, text, (act, *given) = MISUSED[case]
    key, *values = f"loopguard:{text}".split(" ")
    server = start()
    client = server.client
    client.execute_command(command, key, *values)
    before = client.dump(key)
    store = write(server.url).store
    with pytest.raises(StoreError, match=r"k") as error:
        getattr(store, act)(*given)
    assert error.value.reason == "refused"
    for _ in range(3):
        assert store.records("k") == store.journal("k") == []
        assert store.get("preference", "k") is None
    assert (client.dump(key), client.ttl(key)) == (before, -1)
    assert client.keys("*") == [key.encode()]
    told = [found.getMessage() for found in caplog.records if found.levelno == logging.WARNING]
    assert len(told) == (0 if "ids" in key or "claim" in key else 1)
    assert all(repr(key) in message for message in told)


def test_a_journal_with_foreign_entries_is_read(
    store: RedisStore, kept: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries of another shape are left out and logged once; ids that are no text are readable."""
    store.append("mixed", [("a", b"1")])
    kept.client.xadd("loopguard:{mixed}:journal", {"x": "1", "y": "2"}, id="2-0")
    kept.client.xadd("loopguard:{mixed}:journal", {b"\xff": "3"}, id="3-0")
    assert store.journal("mixed") == [("a", b"1"), ("\\xff", b"3")]
    assert store.journal("mixed", after="a") == [("\\xff", b"3")]
    assert caplog.text.count("is no journal entry") == 1
    store.append("mixed", [("b", b"4")])
    assert store.journal("mixed")[-1] == ("b", b"4")


def test_what_is_kept_has_an_end_and_takes_little_room(store: RedisStore, kept: Server) -> None:
    """Profiles and journals end after seven days (A1); the store adds less than 50 bytes to an
    entry, ids included."""
    for start in range(0, 1000, 100):
        made = [(f"abcdef:{n:03}", os.urandom(90)) for n in range(start, start + 100)]
        store.append("ends", made)
    store.add_records("ends", [b"x"])
    keys = kept.client.keys("loopguard:{ends}:*")
    used = sum(kept.client.memory_usage(key, samples=0) for key in keys)
    assert 100 < used / 1000 <= 150
    for key in [*keys, "loopguard:tool_profile:{ends}"]:
        assert 604_000 < kept.client.ttl(key) <= 604_800


def test_scripts_are_loaded_again(store: RedisStore, kept: Server) -> None:
    """A server that was restarted or flushed its scripts knows none of them."""
    store.put("control", "scripts", b"1")
    kept.client.script_flush()
    store.put("control", "scripts", b"2")
    assert store.get("control", "scripts") == b"2"


def test_a_prefix_keeps_guards_apart(kept: Server) -> None:
    """Two applications share a Redis."""
    one, two = (
        RedisStore(Settings(store_url=kept.url, store_prefix=prefix)) for prefix in ("a:b", "c")
    )
    one.put("control", "k", b"1")
    assert two.get("control", "k") is None
    assert kept.client.exists("a:b:control:{k}")
    one.close()
    two.close()
