"""What all tests share: faults of ours are raised, and the environment sets nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from otel_loopguard.faults import raise_faults


@pytest.fixture(autouse=True)
def _faults_are_raised() -> Iterator[None]:
    raise_faults(True)
    yield
    raise_faults(False)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOOPGUARD_")]:
        if name not in ("LOOPGUARD_FRAMEWORKS_PYTHON", "LOOPGUARD_WRITE_DOCS"):
            monkeypatch.delenv(name)
