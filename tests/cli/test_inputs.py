"""What every command that reads recordings does with files that are broken, empty or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("steps", "replay", "report", "explain", "learn", "eval", "doctor")


@pytest.mark.parametrize("name", COMMANDS)
def test_broken_lines(command: Any, runs: Path, name: str) -> None:
    """Ten are told with file and number and then how many more; what is whole is read."""
    whole = command(name, runs, "--format", "json").stdout.splitlines()
    runs.write_text("no json\n" * 30 + runs.read_text())
    result = command(name, runs, "--format", "json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == len(whole) > 0
    *reports, last = result.stderr.splitlines()
    told = [report.partition(": ")[0] for report in reports]
    assert told == [f"{runs}:{number}" for number in range(1, 11)]
    assert last == "otel-loopguard: 20 more reports left out"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("content", [b"", b"\x7fELF\0\0\n" * 100], ids=["empty", "binary"])
def test_a_file_that_holds_nothing(command: Any, tmp_path: Path, name: str, content: bytes) -> None:
    """An empty file and a binary one end with 1 and one line that says so."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = command(name, path)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{path}:1: the file is ")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_not_there(command: Any, name: str) -> None:
    """It ends with 2 and a message that names it."""
    result = command(name, "no-such-file")
    assert result.exit_code == (1 if name == "explain" else 2)  # there it may be a session
    assert result.stdout == ""
    assert "no-such-file" in result.stderr


@pytest.mark.parametrize("name", COMMANDS[1:6])
def test_settings_of_a_file(command: Any, runs: Path, tmp_path: Path, name: str) -> None:
    """`--settings` is read, and a value that is none is named."""
    path = tmp_path / "settings.toml"
    path.write_text("repeat_threshold = 1\n")
    result = command(name, runs, "--settings", path)
    assert result.exit_code == 2
    assert "repeat_threshold" in result.stderr
    assert command(name, runs, "--settings", "no-such-file").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay",), "FILE"),
        (("replay", "-", "--format", "xml"), "xml"),
        (("nonsense",), "nonsense"),
        (("steps", "."), ".: the folder holds no transcript of a coding agent"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_what_cannot_be_used(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, said: str
) -> None:
    """It ends with 2 and a message that names it."""
    monkeypatch.chdir(tmp_path)
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
