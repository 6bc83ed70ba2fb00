"""Cases that are data: in a text file beside the test, `[section]` and then rows, `a | b`."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTION = re.compile(r"\[\w+\]")


def rows(test: str, section: str) -> list[Any]:
    """The rows of a section of the file beside a test, whose first cell names the case."""
    lines = Path(test).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    first = lines.index(f"[{section}]") + 1
    last = next((n for n in range(first, len(lines)) if SECTION.fullmatch(lines[n])), len(lines))
    cells = [line.split(" | ") for line in lines[first:last] if line and line[0] != "#"]
    width = max(map(len, cells))
    return [pytest.param(*row, *[""] * (width - len(row)), id=row[0][:60]) for row in cells]


def content(text: str) -> bytes:
    """What a cell says in bytes: with the escapes of Python, and with `<9 times x>`."""
    escaped = text.encode().decode("unicode_escape")
    repeated = re.compile(r"<(\d+) times (.+?)>", re.DOTALL)
    return repeated.sub(lambda some: some[2] * int(some[1]), escaped).encode("latin-1")


def toml(path: Path) -> dict[str, Any]:
    """What a file of TOML has."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
