"""What commands print: on a narrow terminal, to a full disk, to streams that are closed."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.cli.conftest import line

PROGRAM = "from otel_loopguard.cli import main; main()"
ID = "session-of-a-customer-0123456789-0123456789-0123456789-0123456789-01234567"


COMMANDS = ("steps", "replay", "report", "explain", "learn", "eval")
EACH = """
import sys
from otel_loopguard.cli import main
_, file, *names = sys.argv
for name in names:
    print("==", name, flush=True)
    sys.argv[1:] = name, file
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""


@pytest.mark.parametrize("width", [80, 140])
def test_a_real_terminal(width: int, runs: Path) -> None:
    """Nothing is wider than the terminal, and nothing but content is cut: no heading and no id."""
    runs.write_text(f"{runs.read_text()}\n{line(ID, loop=True)}")
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    known = {each: value for each, value in os.environ.items() if each != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", EACH, str(runs), *COMMANDS],
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
    before, *pieces = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).split("== ")
    assert before == ""
    found = {name: lines for name, *lines in map(str.splitlines, pieces)}
    assert (*found,) == COMMANDS
    for name, lines in found.items():
        assert lines
        assert all(len(row) <= width for row in lines), lines
        assert not any("…" in row for row in lines if name != "steps")
        assert any(ID in row for row in lines) or name in ("learn", "eval")


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


def test_without_the_extra(tmp_path: Path) -> None:
    """Without typer the command says in one line what to install, and ends with 2."""
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {root!r}]\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "the command line needs the extra `cli`: pip install 'otel-loopguard[cli]'\n"
    )
