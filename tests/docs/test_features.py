"""docs/project/features.md has every capability, where it lives and which test shows it."""

from __future__ import annotations

import os
import re

import pytest

from tests.docs.features import FEATURES, PAGE, cells, fresh
from tests.docs.markdown import ROOT
from tests.docs.programs import SHARED, need_shared

STATES = ("done", "partly", "not yet")
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {row[0]: row[1:] for row in map(cells, re.findall(r"^\| [A-Z]\d+ \|.*", TEXT, re.MULTILINE))}


def test_every_capability_has_one_row() -> None:
    """The IDs are those of the list of features, each once and in its order."""
    need_shared()
    wanted = re.findall(
        r"^\| ([A-Z]\d+) \|", (SHARED / "FEATURES.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    ids = re.findall(r"^\| ([A-Z]\d+) \|", TEXT, re.MULTILINE)
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


def test_rooms_and_tests_are_fresh() -> None:
    """Both columns come from features.toml and the files of the tests; `make docs` writes them."""
    assert set(FEATURES) <= set(ROWS)
    rooms = {room for feature in FEATURES.values() for room in feature["in"]}
    assert [room for room in rooms if not (ROOT / "otel_loopguard" / room).exists()] == []
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    assert text == fresh(text), "run `make docs`"
