"""Hostile spans of every dialect: nothing leaves a hook, no fault is counted, memory is bounded.

`LOOPGUARD_FUZZ_SPANS` (of the environment in which pytest starts) sets the number of spans: 20,000
as a rule, a million before a release. The seed is fixed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from otel_loopguard._util.errors import raise_faults
from tests.attacks.fuzz import MOST, Fuzz
from tests.bad_input.sizes import sizes

SPANS = int(os.environ.get("LOOPGUARD_FUZZ_SPANS", "20000"))


@pytest.fixture(autouse=True)
def _faults_are_counted() -> Iterator[None]:
    """What the hooks swallow is what is looked at, and the SDK logs every bad value."""
    raise_faults(False)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def feed(spans: int) -> Fuzz:
    """A guard that was fed so many spans."""
    fuzz = Fuzz()
    fuzz.run(spans)
    assert fuzz.figures.escaped == []
    assert fuzz.figures.faults == {}
    assert len(fuzz.guard._sessions) <= MOST
    return fuzz


def test_no_fault_is_counted() -> None:
    """A thousand spans, with each change."""
    feed(1_000)


@pytest.mark.rare
def test_no_fault_is_counted_of_many() -> None:
    """Twenty thousand, or as many as the environment says; tables hold no more than after a few."""
    few = sizes(feed(5_000).guard)
    assert sizes(feed(SPANS).guard) < 4 * few
