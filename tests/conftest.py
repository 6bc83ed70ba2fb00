"""What all tests share: faults of ours are raised, and the environment sets nothing."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # imported later, a fork hangs inside the SDK
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_loopguard.blind_spots import forget_warnings
from otel_loopguard.faults import raise_faults

pytest_plugins = ["pytester"]  # for the tests of our own plugin


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded runs and captures."""
    folder = Path(__file__).resolve().parents[1].parent / "shared"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is missing")
        pytest.skip(f"{folder} is missing")
    return folder


@pytest.fixture(autouse=True)
def _faults_are_raised() -> Iterator[None]:
    raise_faults(True)
    yield
    raise_faults(False)


@pytest.fixture(autouse=True)
def _blind_spots_are_told_again() -> None:
    forget_warnings()


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOOPGUARD_")]:
        if not name.startswith(("LOOPGUARD_FRAMEWORKS_", "LOOPGUARD_WRITE_DOCS")):
            monkeypatch.delenv(name)
