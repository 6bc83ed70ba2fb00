from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.serving import Hop, next_hop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hop() -> Iterator[tuple[Hop, str]]:
    """A next hop over HTTP, and its URL."""
    with next_hop() as made:
        yield made
