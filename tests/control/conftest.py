"""Guards on one Redis, as processes have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings
from tests.merged import merged
from tests.stores.servers import Server


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module; tests use sessions of their own."""
    server = Server(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may maltreat."""
    server = Server(tmp_path / "redis").start()
    yield server
    server.kill()


Guards = Callable[..., LoopGuard]


@pytest.fixture
def guards(kept: Server) -> Iterator[Guards]:
    """Makes guards on the module's server, and ends them."""
    made: list[LoopGuard] = []

    def make(server: Server | None = None, **settings: Any) -> LoopGuard:
        given = {
            "store_url": (server or kept).url,
            "tuning": {"stores": {"retry_s": 0.2}},
            "digest_key": "one key for all of them",
        }
        made.append(LoopGuard(Settings(**merged(given, settings))))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
