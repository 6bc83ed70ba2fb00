"""What the tests of bad input share."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from otel_loopguard._util.errors import raise_faults


@pytest.fixture(autouse=True)
def _no_deadlock() -> Iterator[None]:
    """A test that hangs shows all stacks and ends the run."""
    faulthandler.dump_traceback_later(180, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def no_raise(_faults_are_raised: None) -> None:
    """Faults are swallowed, as they are outside of tests."""
    raise_faults(False)
