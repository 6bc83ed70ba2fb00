"""Redis servers, and each kind of store, for the tests of stores."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.stores import Writer
from otel_loopguard.stores.redis import RedisStore
from tests.stores.memory import MemoryStore
from tests.stores.servers import Server, wait_for

Start = Callable[..., Server]
Write = Callable[..., Writer]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module; tests use sessions and tools of their own."""
    server = Server(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


_SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Three masters that have all slots between them."""
    folder = tmp_path_factory.mktemp("cluster")
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--appendonly", "yes")
    nodes = [Server(folder / str(number), *options).start() for number in range(3)]
    for node, (first, last) in zip(nodes, _SLOTS, strict=True):
        node.client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last + 1))
        node.client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    wait_for(lambda: all(_ready(node.client) for node in nodes))
    yield nodes
    for node in nodes:
        node.kill()


def _ready(client: Any) -> bool:
    said = client.cluster("INFO")
    return said["cluster_state"] == "ok" and said["cluster_known_nodes"] == "3"


def cluster_url(nodes: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@pytest.fixture(params=["memory", "redis", "cluster"])
def any_store(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    """Each kind of store."""
    if request.param == "memory":
        yield MemoryStore()
        return
    found = request.getfixturevalue("kept" if request.param == "redis" else "cluster")
    url = found.url if request.param == "redis" else cluster_url(found)
    store = RedisStore(Settings(store_url=url, tuning={"stores": {"retry_s": 0.2}}))
    yield store
    store.close()


@pytest.fixture
def write() -> Iterator[Write]:
    """Makes writers to a store, or to the one at an address, and closes them.

    Every value but the address is of `tuning.stores`.
    """
    made: list[Writer] = []

    def make(place: str | RedisStore, **tuning: object) -> Writer:
        quick = {"delay_s": 0.01, "retry_s": 0.1, "timeout_s": 0.5, **tuning}
        url = place if isinstance(place, str) else ""
        given = Settings(store_url=url, tuning={"stores": quick})
        store = RedisStore(given) if isinstance(place, str) else place
        made.append(Writer(store, given, InternalErrors()))
        return made[-1]

    yield make
    for one in made:
        one.close(0)


_names = itertools.count()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"name-{next(_names)}"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers that a test may maltreat."""
    started: list[Server] = []

    def make(*options: str, port: int | None = None) -> Server:
        server = Server(tmp_path / f"redis-{len(started)}", *options, port=port).start()
        started.append(server)
        return server

    yield make
    for server in started:
        server.kill()


@pytest.fixture
def store(kept: Server) -> Iterator[RedisStore]:
    """A store in the module's server."""
    found = RedisStore(Settings(store_url=kept.url))
    yield found
    found.close()
