"""The columns of docs/project/features.md: where a feature lives and which tests show it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.docs.markdown import ROOT

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

PAGE = ROOT / "docs/project/features.md"
FEATURES: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("features.toml").read_text(encoding="utf-8")
)


def cells(row: str) -> list[str]:
    """The cells of a row: id, capability, state, rooms, tests, note."""
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def fresh(text: str) -> str:
    """The page with the columns of rooms and tests written anew."""

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
