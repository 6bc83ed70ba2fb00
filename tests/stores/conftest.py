"""Redis servers for the tests of stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_loopguard.settings import Settings
from otel_loopguard.stores.redis import RedisStore
from tests.stores.servers import Server


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module; tests use sessions and tools of their own."""
    server = Server(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
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
