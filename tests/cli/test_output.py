"""What commands print: on a narrow terminal, to a full disk, to streams that are closed."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from otel_loopguard.cli import output

PROGRAM = "from otel_loopguard.cli import main; main()"
ID = "session-of-a-customer-0123456789-0123456789-0123456789-0123456789-01234567"
COLUMNS = ("session", "runs with tokens#", "what was measured~", "escalation")
ROWS = [(ID, 17, "a sentence of several words that may wrap " * 3, "91637123e88a4dcb")]


@pytest.mark.parametrize("width", [80, 100, 140, 10_000])
def test_no_heading_and_no_id_is_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table where there is room for one, else as a block of names and values."""
    out = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "console", lambda: out)
    out.print(output.table(COLUMNS, ROWS))
    assert isinstance(out.file, StringIO)
    shown = out.file.getvalue()
    assert "…" not in shown
    for part in (ID, "91637123e88a4dcb"):
        assert part in shown
    words = set(re.findall(r"[a-z]+", shown))
    assert words >= {word for name in COLUMNS for word in re.findall("[a-z]+", name)}
    assert all(len(line) <= width for line in shown.splitlines())


@pytest.mark.parametrize("name", ["steps", "replay", "report", "explain", "learn", "eval"])
def test_a_real_terminal_of_80_columns(name: str, runs: Path) -> None:
    """Nothing is wider than the terminal, and nothing but content is cut."""
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    known = {each: value for each, value in os.environ.items() if each != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name, str(runs)],
        stdin=inner, stdout=inner, stderr=subprocess.DEVNULL,
        env={**known, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(inner)
    said = b""
    while True:
        try:
            part = os.read(outer, 65_536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        said += part
    os.close(outer)
    assert process.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).splitlines()
    assert lines
    assert all(len(line) <= 80 for line in lines), lines
    assert not any("…" in line for line in lines if name != "steps")


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
