"""Subscriptions in trouble, and values that are put and published."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.settings import Settings
from otel_loopguard.stores import PublishedValue, Writer
from otel_loopguard.stores.redis import RedisStore
from tests.stores.servers import Server, listen, listening, wait_for

if TYPE_CHECKING:
    import pytest


def test_the_thread_ends_with_its_subscription(kept: Server) -> None:
    """Nobody has to close what was forgotten."""
    store = RedisStore(Settings(store_url=kept.url))
    before = listening()
    _, subscription = listen(store, "of its own")
    (thread,) = (one for one in listening() if one not in before)
    del subscription
    wait_for(lambda: gc.collect() >= 0 and not thread.is_alive())
    store.close()


def test_it_goes_on_after_an_outage(
    start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """As before there is a server: it connects by itself and logs each outage once."""
    server = start()
    server.kill()
    store = RedisStore(Settings(store_url=server.url, tuning={"stores": {"retry_s": 0.1}}))
    heard: list[bytes] = []
    joined: list[float] = []
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        subscription = store.subscribe("t", heard.append, lambda: joined.append(time.monotonic()))
        time.sleep(0.3)
        assert not joined
        for number in (1, 2):
            server.start()
            wait_for(lambda number=number: len(joined) == number)
            if number == 1:
                time.sleep(0.2)  # longer than `retry_s`: the next outage is another one
                server.kill()
                time.sleep(0.5)
    store.publish("t", b"after")
    wait_for(lambda: heard == [b"after"])
    assert sum("are not heard" in line for line in caplog.messages) == 2
    subscription.close()
    store.close()


def published(value: bytes, stands: bool = False) -> PublishedValue:
    return PublishedValue(value, 60, "t", lambda before: stands and before != value)


def test_a_notice_is_put_and_published(kept: Server, name: str) -> None:
    """At once: nobody waits for a batch to be full."""
    given = Settings(store_url=kept.url, tuning={"stores": {"delay_s": 30}})
    store = RedisStore(given)
    heard, subscription = listen(store, "t")
    writer = Writer(store, given, InternalErrors())
    assert writer.publish("control", name, published(b"1"))
    wait_for(lambda: heard == [b"1"])
    assert store.get("control", name) == b"1"
    assert writer.publish("control", name, published(b"2", stands=True))
    assert writer.flush(60)
    assert store.get("control", name) == b"1"
    assert writer.publish("control", name, published(b"3"))
    wait_for(lambda: heard == [b"1", b"3"])
    subscription.close()
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
    subscription.close()
    writer.close()
