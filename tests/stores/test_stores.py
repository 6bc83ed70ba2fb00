"""What every store does: in the memory of tests, in one Redis, and in a Cluster."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from otel_loopguard.stores.redis import RedisStore
from tests.stores.servers import listen, listening, wait_for

NOW = time.time_ns()
SECOND = 1_000_000_000


def record(at: int, what: str = "") -> bytes:
    return orjson.dumps([at, what])


def test_a_profile_is_given_oldest_first(any_store: RedisStore, name: str) -> None:
    """Ordered by the time they start with (A1), and there once, however often written (E8)."""
    made = [record(NOW), b" [ %d ,3.5]" % (NOW - SECOND), record(NOW - 2 * SECOND)]
    for given in ([made[1], made[0], made[2]], made, []):
        any_store.add_records(name, given)
        assert any_store.records(name) == made[::-1]
    assert any_store.records(f"{name}-other") == []


def test_a_profile_keeps_the_newest_hundred_of_seven_days(any_store: RedisStore, name: str) -> None:
    """Older ones and those past a hundred are gone (A1)."""
    day = 86_400 * SECOND
    old = [record(NOW - 8 * day - second * SECOND) for second in range(3)]
    made = [record(NOW - second * SECOND) for second in range(150)]
    any_store.add_records(name, [*old, *made])
    assert any_store.records(name) == made[99::-1]
    any_store.add_records(name, old)
    assert any_store.records(name) == made[99::-1]


def test_a_clock_that_is_ahead_does_not_stay_in_front(any_store: RedisStore, name: str) -> None:
    """A record of tomorrow counts as made now, so that later ones push it out."""
    ahead = record(NOW + 86_400 * SECOND)
    any_store.add_records(name, [ahead])
    time.sleep(0.01)
    later = [record(time.time_ns(), str(number)) for number in range(100)]
    time.sleep(0.01)
    any_store.add_records(name, later)
    assert ahead not in any_store.records(name)
    assert len(any_store.records(name)) == 100


@pytest.mark.parametrize("made", [b"", b"x", b"\xff" * 20, b"[]", b"\x00\x01"])
def test_a_record_without_a_time_is_kept(any_store: RedisStore, name: str, made: bytes) -> None:
    """It counts as made now: bad data is not lost."""
    any_store.add_records(name, [made])
    assert any_store.records(name) == [made]


def test_a_journal_keeps_the_order_of_arrival(any_store: RedisStore, name: str) -> None:
    """A reader who asks for what came after the last entry misses nothing, whoever wrote it; an
    entry is stored once, however often and with whatever else, and the first value stays (E8)."""
    any_store.append(name, [("b", b"1"), ("a", b"2")])
    assert any_store.journal(name) == [("b", b"1"), ("a", b"2")]
    any_store.append(name, [("0", b"3")])
    assert any_store.journal(name, after="a") == [("0", b"3")]
    assert any_store.journal(name, after="0") == []
    assert any_store.journal(name, after="unknown") == any_store.journal(name)
    assert any_store.journal(name, after="b") == [("a", b"2"), ("0", b"3")]
    for given in ([("a", b"2")], [], [("d", b"4"), ("a", b"other"), ("c", b"5"), ("c", b"5")]):
        any_store.append(name, given)
    assert any_store.journal(name, after="a") == [("0", b"3"), ("d", b"4"), ("c", b"5")]


def test_a_journal_keeps_the_newest_thousand(any_store: RedisStore, name: str) -> None:
    """And none of those is stored twice, even long after (C6, E8)."""
    entries = [(f"process:{number}", b"%d" % number) for number in range(3200)]
    for start in range(0, len(entries), 150):
        any_store.append(name, entries[start : start + 150])
    assert any_store.journal(name) == entries[-1000:]
    any_store.append(name, entries[-1000:])
    assert any_store.journal(name) == entries[-1000:]


def test_journals_of_writers_at_the_same_time_are_whole(any_store: RedisStore, name: str) -> None:
    """Every entry of every writer is there once, though each writes everything twice."""

    def write(number: int) -> None:
        for entry in range(50):
            for _ in range(2):
                any_store.append(name, [(f"{number}:{entry}", b"x")])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = [entry_id for entry_id, _ in any_store.journal(name)]
    assert sorted(found) == sorted(f"{n}:{e}" for n in range(4) for e in range(50))


@pytest.mark.parametrize(
    "key",
    ["", "a b", "{x}", "}{", "Größe", "\ud800", "x" * 5000, "a:b", "\n", "%41"],
    ids=lambda key: ascii(key)[:12],
)
def test_any_name_will_do(any_store: RedisStore, key: str) -> None:
    """Names from outside may have anything in them, and do not meet."""
    any_store.append(key, [(key, b"1")])
    any_store.put("preference", key, b"2")
    any_store.add_records(key, [record(NOW, "x")])
    assert any_store.journal(key) == [(key, b"1")]
    assert any_store.get("preference", key) == b"2"
    assert any_store.records(key) == [record(NOW, "x")]
    assert any_store.get("preference", f"{key}A") is None


def test_a_value_is_kept_until_it_ends(any_store: RedisStore, name: str) -> None:
    """The newest counts, and whether it has an end; kinds do not meet. A closed store opens again,
    as the guard may be used after its shutdown."""
    assert any_store.get("control", name) is None
    any_store.put("control", name, b"\x00one")
    any_store.put("control", name, b"\xfftwo")
    assert any_store.get("control", name) == b"\xfftwo"
    assert any_store.get("breaker", name) is None
    for kind in ("control", "breaker"):
        any_store.put(kind, name, b"x", ttl_s=1)
    any_store.put("breaker", name, b"y")
    assert any_store.get("control", name) == b"x"
    wait_for(lambda: any_store.get("control", name) is None)
    any_store.close()
    any_store.close()
    any_store.ping()
    assert any_store.get("breaker", name) == b"y"


def test_one_of_many_gets_a_claim(any_store: RedisStore, name: str) -> None:
    """Of owners at the same time exactly one (E5); one that died does not hold it for ever."""
    together = threading.Barrier(8)

    def ask(owner: int) -> bool:
        together.wait()
        return any_store.claim("breaker", name, f"o{owner}", 30)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(ask, range(8)))
    assert won.count(True) == 1
    assert any_store.claim("breaker", name, f"o{won.index(True)}", 30)
    assert not any_store.claim("breaker", name, "another", 30)
    assert any_store.claim("breaker", f"{name}2", "one", 1)
    assert not any_store.claim("breaker", f"{name}2", "two", 1)
    wait_for(lambda: any_store.claim("breaker", f"{name}2", "two", 5))


def test_all_who_listen_to_a_topic_hear(any_store: RedisStore, name: str) -> None:
    """In order, byte for byte, until they close; who listens elsewhere or later does not."""
    any_store.publish(name, b"nobody has to listen")
    one, first = listen(any_store, name)
    two, second = listen(any_store, name)
    other, third = listen(any_store, f"{name} of others {{x}}")
    said = [b"1", b"\x00\xff", b"x" * 5000]
    for message in said:
        any_store.publish(name, message)
    wait_for(lambda: len(one) == len(two) == 3)
    assert one == two == said
    any_store.publish(f"{name} of others {{x}}", b"z")
    wait_for(lambda: other == [b"z"])
    for subscription in (first, second, third, third):
        subscription.close()
    wait_for(lambda: not listening())  # they look once a second
    any_store.publish(name, b"late")
    assert one == two == said


def test_the_thread_ends_with_its_subscription(store: RedisStore, name: str) -> None:
    """Nobody has to close what was forgotten."""
    before = listening()
    _, subscription = listen(store, name)
    # Another guard of this process may listen anew just then.
    threads = [one for one in listening() if one not in before]
    assert threads
    del subscription
    wait_for(lambda: gc.collect() >= 0 and not all(one.is_alive() for one in threads))


@pytest.mark.parametrize("what", ["emptied", "newest", "all but one", "deleted", "ids", "all"])
def test_a_journal_that_was_trimmed_from_outside_goes_on(store: RedisStore, what: str) -> None:
    """What comes after is stored and read, once each, in order; what was removed stays away."""
    session = f"trimmed {what}"
    stream, *sets = store.keys.journal(session)
    client = store.connection._open()
    entries = [(f"e{number}", b"x") for number in range(6)]
    store.append(session, entries[:3])
    assert [name for name, _ in store.journal(session)] == ["e0", "e1", "e2"]
    if what in {"emptied", "all but one"}:
        client.xtrim(stream, maxlen=int(what != "emptied"), approximate=False)
    elif what == "newest":
        client.xdel(stream, "3-0")
    else:
        client.delete(*{"deleted": [stream], "ids": sets, "all": [stream, *sets]}[what])
    left = {"all but one": ["e2"], "newest": ["e0", "e1"], "ids": ["e0", "e1", "e2"]}.get(what, [])
    assert [name for name, _ in store.journal(session, "e2")] in ([], left)
    store.append(session, entries[3:5])
    store.append(session, entries[4:])
    new = ["e3", "e4", "e5"]
    since = [name for name, _ in store.journal(session, "e2")]
    assert since == (new if "e2" in left else [*left, *new])
    assert [name for name, _ in store.journal(session)] == [*left, *new]
    assert [name for name, _ in store.journal(session, "e4")] == ["e5"]
