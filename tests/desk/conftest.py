"""Guards of other tests have no escalations here."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_other_guards() -> None:
    gc.collect()
