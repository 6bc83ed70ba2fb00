"""A Cluster of three nodes, and a Sentinel, on this machine."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from otel_loopguard import Settings
from otel_loopguard.errors import StoreError
from otel_loopguard.stores.redis import RedisStore
from tests.stores.conftest import Write, cluster_url
from tests.stores.servers import Server, free_port, listen, need_redis, wait_for


def test_topics_work_on_a_cluster(cluster: list[Server]) -> None:
    """A message reaches all, whichever node they are connected to."""
    stores = [RedisStore(Settings(store_url=cluster_url(cluster[number:]))) for number in range(3)]
    heard: list[list[bytes]] = [[], [], []]
    joined: list[int] = []
    listening = [
        store.subscribe("t", into.append, lambda: joined.append(1))
        for store, into in zip(stores, heard, strict=True)
    ]
    wait_for(lambda: len(joined) == 3)
    for number, store in enumerate(stores):
        store.publish("t", b"%d" % number)
    wait_for(lambda: all(sorted(one) == [b"0", b"1", b"2"] for one in heard))
    for one, store in zip(listening, stores, strict=True):
        one.close()
        store.close()


def test_keys_are_spread_over_the_nodes(cluster: list[Server]) -> None:
    """Each session, tool and value lies where its name says."""
    store = RedisStore(Settings(store_url=cluster_url(cluster)))
    before = [node.client.dbsize() for node in cluster]
    for number in range(100):
        store.put("control", f"n{number}", b"v")
    added = [node.client.dbsize() - was for node, was in zip(cluster, before, strict=True)]
    assert sum(added) == 100
    assert min(added) > 10
    store.close()


def test_a_node_that_is_killed_comes_back_with_all(cluster: list[Server], write: Write) -> None:
    """Meanwhile its writes wait; afterwards each entry is there once."""
    writer = write(cluster_url(cluster))
    names = [f"k{number}" for number in range(30)]
    for name in names:
        writer.append(name, [("a", b"1")])
    assert writer.flush(60)
    cluster[1].kill()
    for name in names:
        writer.append(name, [("b", b"2")])
    wait_for(lambda: writer.state == "down")
    cluster[1].start()
    assert writer.flush(60)
    assert writer.stored == 60
    for name in names:
        assert writer.store.journal(name) == [("a", b"1"), ("b", b"2")]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Server, Server, int]]:
    """A master, its replica, and a Sentinel that takes half a second to see a death."""
    master = Server(tmp_path / "master").start()
    replica = Server(tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port)).start()
    wait_for(lambda: master.client.info("replication")["connected_slaves"] == 1)
    wait_for(lambda: replica.client.info("replication")["master_link_status"] == "up")
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor mine 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds mine 500\nsentinel failover-timeout mine 2000\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(
            [need_redis(), str(config), "--sentinel"], stdout=log, stderr=log
        )
    wait_for(lambda: _sees_replica(port))
    yield master, replica, port
    process.kill()
    process.wait()
    master.kill()
    replica.kill()


def _sees_replica(port: int) -> bool:
    try:
        return len(redis.Redis(port=port, protocol=2).sentinel_slaves("mine")) == 1
    except redis.RedisError:
        return False


def test_sentinels_lead_to_the_new_master(
    watched: tuple[Server, Server, int], write: Write
) -> None:
    """After a failover writes go to the one that was promoted, with what waited meanwhile.

    A subscription follows by itself.
    """
    master, replica, port = watched
    url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/mine/0"
    writer = write(url)
    heard, subscription = listen(writer.store, "t")
    writer.append("s", [("a", b"1")])
    assert writer.flush(60)
    assert master.client.exists("loopguard:{s}:journal")
    wait_for(lambda: replica.client.exists("loopguard:{s}:journal"))
    master.kill()
    writer.append("s", [("b", b"2")])
    assert writer.flush(60)
    assert replica.client.xlen("loopguard:{s}:journal") == 2
    wait_for(lambda: _published(writer.store) and heard)
    subscription.close()


def _published(store: RedisStore) -> bool:
    try:
        store.publish("t", b"x")
    except StoreError:
        return False
    return True
