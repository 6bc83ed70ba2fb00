from collections.abc import Iterator

import pytest

from otel_loopguard import Settings
from tests.server.serving import Hop, next_hop
from tests.stores.servers import Server as Redis


@pytest.fixture
def hop() -> Iterator[Hop]:
    """A next hop over HTTP."""
    with next_hop() as (made, _):
        yield made


@pytest.fixture
def guard(own_redis: Redis) -> Settings:
    """Settings of servers that share a store."""
    return Settings(
        abort_after=2, store_url=own_redis.url, digest_key="a key of all workers",
        tuning={"stores": {"timeout_s": 0.5}},
    )  # fmt: skip
