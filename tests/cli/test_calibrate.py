"""`otel-loopguard calibrate` sets the stop line from runs that went well."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.cli.calibrate import HIGHEST, allowed, changes
from otel_loopguard.errors import LoopGuardError
from tests.cli.conftest import CALL, spans


def run(number: int, times: int, **fields: object) -> str:
    """A labelled run in which one call is made some times, after a few others."""
    same = {
        "kind": "tool",
        "tool": "search",
        "args": {"q": "x"},
        "output": "nothing was found " * 4,
    }
    others = [
        {**same, "args": {"q": f"{number} {i}"}, "output": f"result {i} of {number} " * 9}
        for i in range(4)
    ]
    known = {"id": f"run {number}", "source": "s", "label": {"success": True}, "loop": None}
    return json.dumps({**known, "steps": [*others, *[same] * times], **fields})


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """99 runs that went well; in two a call is made five and nine times all the same."""
    path = tmp_path / "past.jsonl"
    lines = [run(number, times) for number, times in enumerate([5, 9] + [0] * 97)]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("runs", "rate", "above"),
    [(999, 0.001, 0), (1999, 0.001, 1), (99, 0.05, 4), (99, 0.01, 0), (1, 0.5, 0), (3, 1, 3)],
)
def test_how_many_runs_may_be_stopped(runs: int, rate: float, above: int) -> None:
    """The line is put at the conformal quantile, ceil((n + 1)(1 - rate)) of n."""
    assert allowed(runs, rate) == above


@pytest.mark.parametrize(
    ("runs", "rate", "said"),
    [
        (998, 0.001, "at least 999 good runs, and there are 998, enough for one false stop in 999"),
        (0, 0.1, "at least 9 good runs, and there are 0"),
        (10, 0, "more than 0"),
        (10, float("nan"), "more than 0"),
    ],
    ids=["one too few", "none", "never", "no number"],
)
def test_too_few_runs(runs: int, rate: float, said: str) -> None:
    """It is refused, with how many are needed and which rate there are enough for."""
    with pytest.raises(LoopGuardError, match=said):
        allowed(runs, rate)


def test_the_line_stands_above_the_good_runs(objects: Any, past: Path) -> None:
    """At 1 % no run of 99 may be stopped: the line is one above what the worst of them reached."""
    (made,) = objects("calibrate", past, "--false-stops", 0.01)
    tried = {row["line"]: row["stopped"] for row in made["lines"]}
    assert made["runs"] == 99
    assert (made["noticed"], made["before"]) == (2, 2)
    assert tried[made["line"]] == 0
    assert tried[made["line"] - 1] > 0
    assert made["settings"]["deny_after"] == made["settings"]["pause_after"] == made["line"]
    assert made["settings"]["abort_after"] > made["line"]
    # At 5 % four may be stopped, and the lowest line will do.
    (made,) = objects("calibrate", past, "--false-stops", 0.05)
    assert (made["line"], made["lines"]) == (1, [{"line": 1, "stopped": 2}])


def test_the_file_does_what_is_said(objects: Any, command: Any, past: Path, tmp_path: Path) -> None:
    """The settings file is accepted, holds what was changed, and a replay with it stops nothing."""
    path = tmp_path / "loopguard.toml"
    order = ("calibrate", past, "--false-stops", 0.01)
    told = command(*order, "--output", path).stdout
    for wanted in ("99 good runs", "0.01 at most", f"Written to {path}", "deny_after = "):
        assert wanted in told
    (made,) = objects(*order)
    assert Settings.from_file(path) == Settings(**made["settings"])
    sessions = objects("replay", past, "--settings", path)
    assert sum(each["strongest"] in ("deny", "pause", "abort") for each in sessions) == 0
    again = command(*order, "--output", path)
    assert again.exit_code == 2
    assert "expected a new file" in again.stderr


def test_only_good_runs_count(objects: Any, past: Path, tmp_path: Path) -> None:
    """Runs that loop, failed, or that nobody judged are left out, and so are those named."""
    other = tmp_path / "other.jsonl"
    lines = [
        run(1000, 30, loop=True),
        run(1001, 30, label={"success": False}),
        run(1002, 30, label={}),
        run(1003, 30, loop=True, label={"success": True}),
        run(1004, 0, loop=False, label={"success": False}),
    ]
    other.write_text("\n".join(lines))
    (made,) = objects("calibrate", past, other, "--false-stops", 0.05, "--except", "run 1")
    assert (made["runs"], made["left_out"]) == (99, 5)
    assert made["noticed"] == 1


def test_sessions_of_spans_are_good(objects: Any, tmp_path: Path) -> None:
    """Every session of spans counts, unless it is said not to be good."""
    path = tmp_path / "spans.jsonl"
    path.write_text(spans(8, 2, 2, 2, **CALL))
    (made,) = objects("calibrate", path, "--false-stops", 0.2)
    assert (made["runs"], made["before"]) == (4, 1)
    assert made["line"] > 1
    (made,) = objects("calibrate", path, "--false-stops", 0.25, "--except", f"{1:032x}")
    assert (made["runs"], made["left_out"], made["line"]) == (3, 1, 1)


def test_broken_lines_are_told_once(command: Any, past: Path) -> None:
    """Files are read several times; what is broken in them is reported once, by exit code too."""
    with past.open("a") as file:
        file.write("\n{broken\n")
    result = command("calibrate", past, "--false-stops", 0.01)
    assert result.exit_code == 1
    assert result.stderr.count("past.jsonl:100") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("past.jsonl", "0.001"), "at least 999"),
        (("past.jsonl", "0.01", "--output", "nowhere/x.toml"), "expected a new file"),
        (("past.jsonl", "0.01", "--output", "x.ini"), "ending in .toml"),
        (("past.jsonl", "1.5"), "--false-stops"),
        (("-", "0.1"), "standard input"),
        (("pipe", "0.5"), "pipe: calibrate reads its files more than once"),
        (("endless.jsonl", "0.5"), "even after 100 confirmations"),
        (("past.jsonl", "0.01", "--settings", "asks.toml"), "max_action = 'ask'"),
    ],
    ids=["too few", "folder", "suffix", "rate", "stdin", "pipe", "no line helps", "no stop"],
)
def test_what_is_refused(
    command: Any, past: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, said: str
) -> None:
    """What cannot be done is said, with exit code 2, and nothing is written."""
    monkeypatch.chdir(past.parent)
    os.mkfifo("pipe")
    Path("endless.jsonl").write_text(run(0, 400))
    Path("asks.toml").write_text('max_action = "ask"')
    file, rate, *options = arguments
    result = command("calibrate", file, "--false-stops", rate, *options, stdin=b"")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not Path("x.ini").exists()


def test_the_highest_line_is_a_setting() -> None:
    """Every line that may be tried is one that the settings take."""
    assert Settings(**changes(Settings(), HIGHEST)).deny_after == HIGHEST
    with pytest.raises(LoopGuardError):
        Settings(deny_after=HIGHEST + 1)
