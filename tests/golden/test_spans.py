"""What is decided about recorded runs does not depend on when their spans are judged."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.decisions import SHARED, golden
from tests.golden.spans import Decided, decided, runs

if TYPE_CHECKING:
    from otel_loopguard.replay.labelled_runs import Run

FILES = (
    "miniswe",
    "sentinel",
    "codetracer-claude",
    "intercode",
    "taubench",
    "trail",
    "codetracer-kimi",
)
PATHS = {name: SHARED / "traces" / f"{name}.jsonl.gz" for name in FILES}
FEW = 12
"""Runs of a file without `--rare`: those about which most was decided, and as many quiet ones."""


@cache
def recorded(name: str, most: int | None) -> list[Run]:
    """Runs of a file; at most so many with decisions, and as many without."""
    all_runs = list(runs(PATHS[name]))
    if most is None:
        return all_runs
    said = {run: len(each.decisions) for (_, run), each in golden().items()}
    loud = sorted((run for run in all_runs if run.id in said), key=lambda run: -said[run.id])
    quiet = [run for run in all_runs if run.id not in said]
    return loud[:most] + sorted(quiet, key=lambda run: len(run.steps))[:most]


@cache
def at_once(name: str, most: int | None, mode: str) -> tuple[Decided, ...]:
    """What is decided where every span is judged as it ends."""
    return tuple(decided(recorded(name, most), 1, mode=mode))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture, shared: Path) -> None:
    assert shared == SHARED
    caplog.set_level(logging.CRITICAL, logger="otel_loopguard")


@pytest.mark.parametrize("mode", ["guard", "shadow"])
@pytest.mark.parametrize("every", [7, 64])
@pytest.mark.parametrize("name", FILES)
def test_batches_decide_the_same(
    name: str, every: int, mode: str, request: pytest.FixtureRequest
) -> None:
    """About each step of each run: the same action, by the same rule."""
    most = None if request.config.getoption("--rare") else FEW
    expected = at_once(name, most, mode)
    assert expected or name == "taubench"  # nothing is decided about those
    assert decided(recorded(name, most), every, mode=mode) == list(expected)
