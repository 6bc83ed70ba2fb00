"""docs/project/features.md has every capability, where it lives and which test shows it."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT
from tests.docs.programs import SHARED, need_shared
from tests.tables import toml

PAGE = ROOT / "docs/project/features.md"
FEATURES: dict[str, dict[str, list[str]]] = toml(Path(__file__).with_name("features.toml"))


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def fresh(text: str) -> str:
    def write(row: re.Match[str]) -> str:
        name, capability, state, _, _, note = cells(row[0])
        feature = FEATURES.get(name, {"in": [], "by": []})
        rooms = ", ".join(f"`{room}`" for room in feature["in"])
        tests = ", ".join(f"`{_place(test)}`" for test in feature["by"])
        return f"| {name} | {capability} | {state} | {rooms} | {tests} | {note} |"

    return re.sub(r"^\| [A-Z]\d+ \|.*\|$", write, text, flags=re.MULTILINE)


def _place(test: str) -> str:
    """The file of a test below tests/, and its name."""
    stem, _, name = test.rpartition("::")
    found = [path for path in _definitions().get(name, []) if stem in ("", path.stem)]
    assert len(found) == 1, f"{test} is in {found or 'no file'}"
    return f"{found[0].relative_to(ROOT / 'tests').as_posix()}::{name}"


@cache
def _definitions() -> dict[str, list[Path]]:
    """The files that define each test: Python's functions, and the tables of `*.txt` by name."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE):
            found.setdefault(name, []).append(path)
    for path in sorted((ROOT / "tests").rglob("*.txt")):
        for name in re.findall(r"^\[(.+)\]$", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(path)
    return found


STATES = ("done", "partly", "not yet")
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {row[0]: row[1:] for row in map(cells, re.findall(r"^\| [A-Z]\d+ \|.*", TEXT, re.MULTILINE))}


def test_every_capability_has_one_row() -> None:
    """The IDs are those of the list of features, each once and in its order."""
    need_shared()
    listed = (SHARED / "FEATURES.md").read_text(encoding="utf-8")
    wanted, ids = (re.findall(r"(?m)^\| ([A-Z]\d+) \|", text) for text in (listed, TEXT))
    assert sorted(ids) == sorted(wanted)
    assert len(ids) == len(set(ids)) == len(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete(name: str) -> None:
    """What is done has a place and a test; what is partly done says what is missing."""
    capability, state, where, test, missing = ROWS[name]
    assert capability
    assert state in STATES
    assert bool(where) is bool(test) is (state != "not yet")
    assert missing or state != "partly", "say what is missing"


def test_rooms_and_tests_are_fresh() -> None:
    """Both columns come from features.toml and the files of the tests; `make docs` writes them."""
    assert set(FEATURES) <= set(ROWS)
    rooms = {room for feature in FEATURES.values() for room in feature["in"]}
    assert [room for room in rooms if not (ROOT / "otel_loopguard" / room).exists()] == []
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        PAGE.write_text(fresh(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    assert text == fresh(text), "run `make docs`"
