"""What is decided about the recorded runs changes on purpose only."""

import logging
from pathlib import Path

import pytest

from tests.golden.decisions import SHARED, changes, golden, recordings, replayed

COMMAND = "if this is meant: `make golden`, and look at each line of its diff"
FILES = recordings(SHARED) if SHARED.is_dir() else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_same_is_decided_as_before(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """About each run of a file, at the same step, by the same rule."""
    caplog.set_level(logging.CRITICAL, logger="otel_loopguard")
    before = {run: said for run, said in golden().items() if run[0] == file.name}
    changed = list(changes(before, replayed(file)))
    if changed:
        head = f"{len(changed)} runs of {file.name} are decided otherwise"
        pytest.fail("\n".join([head, *changed, COMMAND]), pytrace=False)


def test_every_file_is_looked_at(shared: Path) -> None:
    """And none is written down that is not there."""
    names = {file.name for file in FILES}
    assert len(names) >= 12
    assert {name for name, _ in golden()} <= names
