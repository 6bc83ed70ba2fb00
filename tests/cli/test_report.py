"""`otel-loopguard report` prints what each session came to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

KEYS = (
    "source session action should_stop highest_severity totals progress alerts_by_type "
    "notes_by_type alerts cycles tools error_rate mean_interval_s duration_s lacks "
    "switched_off run feedback"
).split()


def test_labelled_runs(objects: Any, runs: Path) -> None:
    """Every run appears with its counts; the one that repeats a call has to stop."""
    stuck, well, who = objects("report", runs)
    assert [list(row) for row in (stuck, well, who)] == [KEYS] * 3
    assert (stuck["session"], stuck["source"]) == ("stuck", "src")
    assert stuck["totals"]["actions"] == 8
    assert stuck["totals"]["loops_detected"] == stuck["totals"]["loops_prevented"] == 1
    assert (stuck["should_stop"], stuck["action"]) == (True, "abort")
    assert stuck["highest_severity"] == "fatal"
    assert sum(stuck["alerts_by_type"].values()) == stuck["totals"]["alerts"]
    assert stuck["tools"] == [{"name": "search", "calls": 8, "errors": 0, "error_rate": 0.0}]
    for quiet in (well, who):
        assert (quiet["alerts"], quiet["should_stop"]) == ([], False)
        assert quiet["highest_severity"] is None


@pytest.mark.parametrize("name", ["intercode.jsonl.gz", "trail.otlp.jsonl.gz"])
def test_it_agrees_with_replay(objects: Any, shared: Path, name: str) -> None:
    """The same decisions, run by run and trace by trace; times and tokens where spans have them."""
    path = shared / "traces" / name
    reports = objects("report", path)
    for replayed, report in zip(objects("replay", path), reports, strict=True):
        assert (replayed["session"], replayed["source"]) == (report["session"], report["source"])
        assert replayed["steps"] == report["totals"]["steps"] > 0
        notes = sum(report["notes_by_type"].values())
        assert len(replayed["decisions"]) == report["totals"]["alerts"] + notes
    assert any(report["alerts"] for report in reports)
    if "otlp" in name:
        assert len({report["session"] for report in reports}) == 70
        assert any(report["totals"]["tokens"] and report["duration_s"] for report in reports)


def test_the_tables(command: Any, runs: Path) -> None:
    """Sessions, then tools and alerts of all of them."""
    lines = command("report", runs).stdout.splitlines()
    assert lines[0].split()[:3] == ["session", "source", "steps"]
    assert lines[1].split()[:3] == ["stuck", "src", "8"]
    assert any(line.startswith("tool ") for line in lines)
    assert any(line.split()[:3] == ["search", "24", "0"] for line in lines)
    assert any(line.startswith("alerts of") for line in lines)


def test_settings_of_a_file(objects: Any, runs: Path, tmp_path: Path) -> None:
    """`--settings` changes what is decided."""
    path = tmp_path / "settings.toml"
    path.write_text('mode = "shadow"\n')
    stuck = objects("report", runs, "--settings", path)[0]
    assert stuck["totals"]["loops_prevented"] == 0
    assert (stuck["should_stop"], stuck["action"]) == (True, "allow")
