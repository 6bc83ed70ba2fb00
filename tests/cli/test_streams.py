"""Output that cannot be written: a full disk, streams that are closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from otel_loopguard.cli import main; main()"
FULL = Path("/dev/full")


def run(redirected: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line in a shell that redirects its streams."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not FULL.exists() and "CI" not in os.environ, reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["replay", "steps", "report"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_disk_is_one_line(runs: Path, command: str, form: str) -> None:
    done = run(f">{FULL}", command, runs, "--format", form)
    assert done.returncode == 2
    assert done.stderr == "otel-loopguard: standard output: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault(runs: Path, closed: str) -> None:
    done = run(closed, "replay", runs)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_path_that_is_none_is_told_without_its_signs(runs: Path) -> None:
    """A terminal would do what they say."""
    done = run("", "replay", runs, "--settings", "\x1b]0;title\x07\x1b[2Jnowhere.toml")
    assert done.returncode == 2
    assert "nowhere.toml" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr
