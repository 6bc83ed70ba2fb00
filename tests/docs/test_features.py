"""docs/features.md says for every capability where it lives and which test shows it."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import ROOT
from tests.docs.programs import SHARED, need_shared

PAGE = ROOT / "docs/features.md"
STATES = ("done", "partly", "not yet")
ROWS = {
    cells[0].strip(): [cell.strip() for cell in cells[1:]]
    for line in (PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else [])
    if re.match(r"\| [A-Z]\d+ \|", line)
    for cells in [line.strip().strip("|").split("|")]
}


def test_every_capability_has_one_row() -> None:
    """The IDs are those of the list of features, each once and in its order."""
    need_shared()
    wanted = re.findall(
        r"^\| ([A-Z]\d+) \|", (SHARED / "FEATURES.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    ids = re.findall(r"^\| ([A-Z]\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(ids) == sorted(wanted)
    assert len(ids) == len(set(ids)) == len(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete(name: str) -> None:
    """What is done has a place and a test; what is partly done says what is missing."""
    capability, state, where, test, missing = ROWS[name]
    assert capability
    assert state in STATES
    if state == "done":
        assert where
        assert test
    if state == "partly":
        assert where
        assert test
        assert missing, "say what is missing"
    if state == "not yet":
        assert not where
        assert not test


@pytest.mark.parametrize("name", ROWS)
def test_what_a_row_names_exists(name: str) -> None:
    """Files are there, and so are the tests in them."""
    _, _, where, test, _ = ROWS[name]
    for path in re.findall(r"`([^`]+)`", where):
        assert (ROOT / "otel_loopguard" / path).exists(), path
    for named in re.findall(r"`([^`]+)`", test):
        path, _, function = named.partition("::")
        file = ROOT / "tests" / path
        assert file.is_file(), path
        assert function, f"name the test in {path}"
        assert f"def {function}(" in file.read_text(encoding="utf-8"), named
