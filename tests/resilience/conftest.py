"""The guard that `resilience` uses, and a clock that tests move."""

from collections.abc import Iterator

import pytest

from otel_loopguard import LoopGuard, set_testing
from otel_loopguard._util.clock import TestMode as Moved


@pytest.fixture
def guard() -> LoopGuard:
    return LoopGuard()


@pytest.fixture
def clock() -> Iterator[Moved]:
    with set_testing(True) as moved:
        yield moved
