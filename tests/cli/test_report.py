"""`report` prints what each session came to, `explain` why it was stopped or not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core.report import Report


def test_labelled_runs(objects: Any, runs: Path) -> None:
    """Every run appears with its counts; the one that repeats a call has to stop."""
    stuck, well, who = objects("report", runs)
    names = {each.name for each in fields(Report)} | {"source", "error_rate", "precision"}
    assert [set(row) for row in (stuck, well, who)] == [names] * 3
    assert (stuck["session"], stuck["source"], stuck["actions"]) == ("stuck", "src", 8)
    assert stuck["loops_detected"] == stuck["loops_prevented"] == 1
    assert (stuck["should_stop"], stuck["action"]) == (True, "abort")
    assert stuck["highest_severity"] == "fatal"
    assert sum(stuck["alerts_by_type"].values()) == stuck["alert_count"]
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
        assert replayed["steps"] == report["steps"] > 0
        notes = sum(report["notes_by_type"].values())
        assert len(replayed["decisions"]) == report["alert_count"] + notes
    assert any(report["alerts"] for report in reports)
    if "otlp" in name:
        assert len({report["session"] for report in reports}) == 70
        assert any(report["tokens"] and report["duration_s"] for report in reports)


def test_the_tables(command: Any, runs: Path) -> None:
    """Sessions, then tools and alerts of all of them."""
    lines = command("report", runs).stdout.splitlines()
    assert lines[0].split()[:3] == ["session", "source", "steps"]
    assert lines[1].split()[:3] == ["stuck", "src", "8"]
    assert any(line.startswith("tool ") for line in lines)
    assert any(line.split()[:3] == ["search", "24", "0"] for line in lines)
    assert any(line.startswith("alerts of") for line in lines)


def test_each_session_of_a_recording(runs: Path, command: Any) -> None:
    """Why it was stopped, and that there was nothing to stop."""
    done = command("explain", runs)
    assert done.exit_code == 0, done.output
    stuck, *rest = done.stdout.split("session ")[1:]
    assert stuck.startswith("stuck: the flag is abort (by policy)")
    assert "deny at step 4 (exact_repeat, identical_call): 'search' was called 4 times" in stuck
    assert "the last round weighs " in stuck
    assert all("the flag is allow" in one for one in rest)


def test_other_settings_explain_otherwise(runs: Path, tmp_path: Path, command: Any) -> None:
    settings = tmp_path / "loopguard.toml"
    settings.write_text('max_action = "hint"\n', encoding="utf-8")
    done = command("explain", runs, "--settings", settings)
    assert "next: this is as far as it goes" in done.stdout
