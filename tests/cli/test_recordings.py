"""Commands that read recordings: what is broken, empty or not there, and real files."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core.report import Report
from otel_loopguard.replay import workers
from tests.cli.conftest import line

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
    assert last == "otel-loopguard: 20 more such lines are not shown"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("content", [b"", b"\x7fELF\0\0\n" * 100], ids=["empty", "binary"])
def test_a_file_that_holds_nothing(command: Any, tmp_path: Path, name: str, content: bytes) -> None:
    """It ends with 1 and one line that says so; one that is not there with 2."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = command(name, path)
    assert result.exit_code == 1
    [said] = result.stderr.splitlines()
    assert said.startswith(f"{path}:1: the file is ")
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


def test_eval_with_workers(objects: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are the same and in the same order."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    path = tmp_path / "runs.jsonl"
    lines = [line(f"r{number}", loop=number % 3 == 0, calls=4 + number % 5) for number in range(80)]
    path.write_text("\n".join(lines))
    found = objects("eval", path, "--errors", "--jobs", 1)
    assert found == objects("eval", path, "--errors", "--jobs", 2)
    assert any(row.get("stopped_tp") for row in found)


@pytest.mark.parametrize("name", ["intercode.jsonl.gz", "trail.otlp.jsonl.gz"])
def test_report_agrees_with_replay(objects: Any, shared: Path, name: str) -> None:
    """The same decisions, run by run and trace by trace; times and tokens where spans have them."""
    path = shared / "traces" / name
    reports = objects("report", path)
    names = {each.name for each in fields(Report)} | {"source", "error_rate", "precision"}
    for replayed, report in zip(objects("replay", path), reports, strict=True):
        assert set(report) == names
        assert (replayed["session"], replayed["source"]) == (report["session"], report["source"])
        assert replayed["steps"] == report["steps"] > 0
        notes = sum(report["notes_by_type"].values())
        assert len(replayed["decisions"]) == report["alert_count"] + notes
    assert any(report["alerts"] for report in reports)
    if "otlp" in name:
        assert len({report["session"] for report in reports}) == 70
        assert any(report["tokens"] and report["duration_s"] for report in reports)


@pytest.mark.parametrize("name", ["trail.jsonl.gz", "trail.otlp.jsonl.gz"], ids=["steps", "spans"])
def test_trail(objects: Any, shared: Path, name: str) -> None:
    """On real durations 85 to 95 % hold, and at most 0.5 % of the steps are called stalled."""
    whole = objects("learn", shared / "traces" / name)[-1]
    assert whole["measured"] > 100
    assert 0.85 <= whole["within"] <= 0.95
    assert whole["alarm_rate"] <= 0.005


def test_steps_of_a_capture(objects: Any, shared: Path) -> None:
    """Every call of a captured agent is printed once, with its arguments and outcome."""
    rows = objects("steps", shared / "spans/langgraph__openinference.otlp.jsonl")
    assert {row["source"] for row in rows} == {"langgraph__openinference.otlp.jsonl"}
    [session] = {row["session"] for row in rows}
    assert session
    assert [row["index"] for row in rows] == list(range(len(rows)))
    tools = [row for row in rows if row["kind"] == "tool"]
    bodies = json.loads((shared / "spans/langgraph__openinference.json").read_text())["bodies"]
    assert [row["tool"] for row in tools] == [
        body["name"] for body in bodies if body["kind"] == "tool"
    ]
    assert tools[0]["args"] == "weather in Paris"
    assert tools[0]["outcome"] == "no results for weather in Paris"
    assert tools[0]["start"] < tools[0]["end"]


def test_the_sample_has_its_notice() -> None:
    """The recorded run is small, and its licence stands beside it."""
    data = Path(__file__).parents[2] / "otel_loopguard/cli/data"
    assert (data / "intercode-sql.otlp.jsonl.gz").stat().st_size < 200_000
    notice = (data / "NOTICE").read_text()
    assert "intercode-sql.otlp.jsonl.gz" in notice
    assert "Copyright (c) 2023 Princeton" in notice
    assert "Permission is hereby granted" in notice
