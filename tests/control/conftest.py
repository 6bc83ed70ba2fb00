"""A session that a guard knows, and guards on one Redis, as processes have them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings
from tests.control.messages import Run
from tests.merged import merged
from tests.stores.conftest import kept, start, store
from tests.stores.servers import Server

__all__ = ["guards", "kept", "run", "start", "store"]


Guards = Callable[..., LoopGuard]


@pytest.fixture
def run() -> Iterator[Run]:
    """A session that is named by the context."""
    with Run() as found:
        yield found


@pytest.fixture
def guards(kept: Server) -> Iterator[Guards]:
    """Makes guards on the module's server, and ends them."""
    known = {"tuning": {"stores": {"retry_s": 0.2}}, "digest_key": "one key for all of them"}
    with ExitStack() as ends:

        def make(server: Server | None = None, **settings: Any) -> LoopGuard:
            given = {"store_url": (server or kept).url, **known}
            guard = LoopGuard(Settings(**merged(given, settings)))
            ends.callback(guard.shutdown)
            return guard

        yield make
