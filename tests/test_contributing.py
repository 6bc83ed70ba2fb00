"""CONTRIBUTING.md shows all that a newcomer has to write for each task.

`tests/docs` runs the programs as they stand; here their first block is put into a copy of the
package, as a new file and a line that registers it, and the trial runs with that package.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks
from tests.programs import ran
from tests.tables import rows

PAGE = ROOT / "CONTRIBUTING.md"
PACKAGE = "otel_loopguard"


def given(section: str, task: str) -> list[list[str]]:
    """What the table beside says of what a newcomer does to the package."""
    found = [row.values for row in rows(__file__, section) if row.values[0] == task]
    return [[str(cell).replace("\\n", "\n") for cell in cells[1:]] for cells in found]


TASKS = [row.values[0] for row in rows(__file__, "files")]


def shown(task: str) -> list[Block]:
    """The blocks of the section about a task: the thing, what tries it, what that prints."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(f"## Add {task}") + 1
    last = next(n for n in range(first, len(lines)) if lines[n].startswith("## "))
    return [block for block in blocks(PAGE) if first <= block.line <= last]


def test_every_file_that_is_named_is_there() -> None:
    named = re.findall(
        r"`((?:otel_loopguard|tests|docs)/[^`\s]*)`", PAGE.read_text(encoding="utf-8")
    )
    assert len(named) >= len(TASKS)
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package in which a newcomer has done all of it."""
    folder = tmp_path_factory.mktemp("newcomer")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=ignored)
    for name in TASKS:
        thing = shown(name)[0].text
        ((file,),) = given("files", name)
        if file:
            (folder / PACKAGE / file).write_text(thing, encoding="utf-8")
        for file, before, new in given("edits", name):
            paths = [folder / PACKAGE / file] if file else (folder / PACKAGE).rglob("*.py")
            texts = {path: path.read_text(encoding="utf-8") for path in paths}
            (path, text) = next((path, text) for path, text in texts.items() if before in text)
            assert sum(each.count(before) for each in texts.values()) == 1, (file, before)
            line = new or thing[thing.index("    ") :]
            path.write_text(text.replace(before, line + before), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_it_works_in_the_package_by_one_file_and_one_line(name: str, package: Path) -> None:
    """Each program prints what the page says, and nothing is registered manually."""
    _, trial, output = shown(name)
    program = trial.text
    for now, then in given("trial", name):
        assert now in program
        program = program.replace(now, then)
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = ran(sys.executable, "-W", "error", "-c", program, cwd=package, env=environment)
    assert done.stdout == output.text
