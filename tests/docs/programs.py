"""Runs what the pages show: programs, commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block

SHARED = ROOT.parent / "shared"
SAMPLE = "otel_loopguard/cli/data/intercode-sql.otlp.jsonl.gz"
_COMMAND = "from otel_loopguard.cli import main; main()"


def need_shared() -> None:
    """Skips without the folder of recorded runs; fails under CI, which has to have it."""
    if SHARED.is_dir():
        return
    if os.environ.get("CI"):
        pytest.fail(f"{SHARED} is missing")
    pytest.skip(f"{SHARED} is missing")


def programs(found: list[Block]) -> list[tuple[Block, str, str | None]]:
    """The Python programs of a page: first block, whole text, and what it is said to print."""
    made: list[tuple[Block, str, str | None]] = []
    for block in found:
        if block.lang == "python" and not block.note.startswith("from: "):
            if block.note == "continues":
                first, text, _ = made.pop()
                made.append((first, text + block.text, None))
            else:
                made.append((block, block.text, None))
        elif block.note == "prints":
            first, text, _ = made.pop()
            made.append((first, text, block.text))
    return made


def run_python(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in an empty folder, with no setting from outside."""
    return _run([sys.executable, "-W", "error", "-c", text], folder)


@cache
def command_line(*arguments: str) -> str:
    """What `otel-loopguard ARGUMENTS` prints, run in the root, which has to go well."""
    done = _run([sys.executable, "-c", _COMMAND, *arguments], ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    ours = ("OTEL_", "LOOPGUARD_", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )


def plain(output: str) -> str:
    """Output without what is new in every run (ids, digests) and without space at line ends."""
    output = re.sub(r"\b(?!1c0de)[0-9a-f]{32}\b", "<trace id>", output)
    output = re.sub(r"\b[0-9a-f]{16}\b", "<digest>", output)
    return "".join(f"{line.rstrip()}\n" for line in output.strip("\n").splitlines())
