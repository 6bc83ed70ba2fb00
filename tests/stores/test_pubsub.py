"""Published messages reach those who listen at that moment."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.settings import Settings
from otel_loopguard.stores import PublishedValue, PubSub, Writer
from otel_loopguard.stores.redis import RedisStore
from tests.stores.memory import MemoryStore
from tests.stores.servers import Server, wait_for

_topics = itertools.count()


@pytest.fixture(params=["memory", "redis"])
def channel(request: pytest.FixtureRequest) -> Iterator[PubSub]:
    """Each kind of store."""
    if request.param == "memory":
        yield MemoryStore()
        return
    server: Server = request.getfixturevalue("kept")
    found = RedisStore(Settings(store_url=server.url, tuning={"stores": {"retry_s": 0.2}}))
    yield found
    found.close()


def listen(channel: PubSub, topic: str) -> tuple[list[bytes], object]:
    """The messages that arrive from now on, and the subscription."""
    heard: list[bytes] = []
    joined = threading.Event()
    subscription = channel.subscribe(topic, heard.append, joined.set)
    assert joined.wait(60)
    return heard, subscription


def test_all_who_listen_to_a_topic_hear(channel: PubSub) -> None:
    """In order, byte for byte; who listens to another topic does not."""
    topic = f"topic-{next(_topics)}"
    one, first = listen(channel, topic)
    two, second = listen(channel, topic)
    other, third = listen(channel, f"{topic} of others {{x}}")
    said = [b"1", b"\x00\xff", b"x" * 5000]
    for message in said:
        channel.publish(topic, message)
    wait_for(lambda: len(one) == len(two) == 3)
    assert one == two == said
    channel.publish(f"{topic} of others {{x}}", b"z")
    wait_for(lambda: other == [b"z"])
    for subscription in (first, second, third):
        subscription.close()  # type: ignore[attr-defined]


def test_nobody_hears_after_the_end(channel: PubSub) -> None:
    """A closed subscription hears nothing; closing twice is no matter."""
    topic = f"topic-{next(_topics)}"
    heard, subscription = listen(channel, topic)
    subscription.close()  # type: ignore[attr-defined]
    subscription.close()  # type: ignore[attr-defined]
    wait_for(lambda: not _threads())  # they look once a second
    channel.publish(topic, b"1")
    assert heard == []


def test_nobody_has_to_listen(channel: PubSub) -> None:
    """What nobody hears is lost."""
    topic = f"topic-{next(_topics)}"
    channel.publish(topic, b"1")
    heard, subscription = listen(channel, topic)
    channel.publish(topic, b"2")
    wait_for(lambda: heard == [b"2"])
    subscription.close()  # type: ignore[attr-defined]


def _threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "loopguard-listening"]


def test_the_thread_ends_with_its_subscription(kept: Server) -> None:
    """Nobody has to close what was forgotten."""
    store = RedisStore(Settings(store_url=kept.url))
    before = _threads()
    _, subscription = listen(store, f"topic-{next(_topics)}")
    (thread,) = (one for one in _threads() if one not in before)
    del subscription
    wait_for(lambda: gc.collect() >= 0 and not thread.is_alive())
    store.close()


def test_it_goes_on_after_an_outage(
    start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """It reconnects by itself and logs that, and the outage once."""
    server = start()
    store = RedisStore(Settings(store_url=server.url, tuning={"stores": {"retry_s": 0.1}}))
    heard: list[bytes] = []
    joined: list[float] = []
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        subscription = store.subscribe("t", heard.append, lambda: joined.append(time.monotonic()))
        wait_for(lambda: joined)
        server.kill()
        time.sleep(0.5)
        server.start()
        wait_for(lambda: len(joined) == 2)
    store.publish("t", b"after")
    wait_for(lambda: heard == [b"after"])
    assert sum("are not heard" in line for line in caplog.messages) == 1
    subscription.close()
    store.close()


def test_it_waits_for_a_server_that_is_not_there_yet(start: Callable[..., Server]) -> None:
    """Subscribing does not fail, nor wait."""
    server = start()
    server.kill()
    store = RedisStore(Settings(store_url=server.url, tuning={"stores": {"retry_s": 0.1}}))
    heard: list[bytes] = []
    joined = threading.Event()
    subscription = store.subscribe("t", heard.append, joined.set)
    assert not joined.is_set()
    server.start()
    assert joined.wait(60)
    subscription.close()
    store.close()


def published(value: bytes, stands: bool = False) -> PublishedValue:
    return PublishedValue(value, 60, "t", lambda before: stands and before != value)


def test_a_notice_is_put_and_published(kept: Server) -> None:
    """At once: nobody waits for a batch to be full."""
    given = Settings(store_url=kept.url, tuning={"stores": {"delay_s": 30}})
    store = RedisStore(given)
    heard, subscription = listen(store, "t")
    writer = Writer(store, given, InternalErrors())
    name = f"name-{next(_topics)}"
    assert writer.publish("control", name, published(b"1"))
    wait_for(lambda: heard == [b"1"])
    assert store.get("control", name) == b"1"
    assert writer.publish("control", name, published(b"2", stands=True))
    assert writer.flush(60)
    assert store.get("control", name) == b"1"
    assert writer.publish("control", name, published(b"3"))
    wait_for(lambda: heard == [b"1", b"3"])
    subscription.close()  # type: ignore[attr-defined]
    writer.close()


def test_a_notice_survives_an_outage(start: Callable[..., Server]) -> None:
    """It is tried again until it is both put and published; only the newest of a key."""
    server = start()
    given = Settings(store_url=server.url, tuning={"stores": {"retry_s": 0.1, "delay_s": 0}})
    store = RedisStore(given)
    writer = Writer(store, given, InternalErrors())
    _heard, subscription = listen(store, "t")
    server.kill()
    for value in (b"1", b"2"):
        assert writer.publish("control", "name", published(value))
    time.sleep(0.3)
    server.start()
    assert writer.flush(60)
    assert store.get("control", "name") == b"2"
    subscription.close()  # type: ignore[attr-defined]
    writer.close()


class Bare:
    """A store that has no topics."""

    def __init__(self) -> None:
        self.inner = MemoryStore()

    def get(self, kind: str, key: str) -> bytes | None:
        return self.inner.get(kind, key)

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        self.inner.put(kind, key, value, ttl_s)


def test_a_store_without_topics_keeps_it_all_the_same() -> None:
    """Who comes later sees it."""
    store = Bare()
    published(b"1").do(store, "control", "name")  # type: ignore[arg-type]
    assert store.inner.get("control", "name") == b"1"
