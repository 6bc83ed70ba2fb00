"""Guards of other tests have no escalations here."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_other_guards() -> None:
    gc.collect()
