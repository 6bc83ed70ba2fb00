"""`python -m lab.evaluate`: what only this project asks of its rules, on labelled runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.curve import picture
from lab.evaluate import main
from lab.left_out import SENSITIVITIES, tried
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Run
from otel_loopguard.settings import Settings
from tests.cli.conftest import line, runs

__all__ = ["runs"]  # a fixture


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    """Runs it, and gives the objects that it prints."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        assert main([*map(str, arguments), "--format", "json"]) == 0
        return [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    return run


def test_cost(evaluated: Any, capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    """What a stuck run spent until it was stopped, and after that."""
    found = {
        (row["tier"], row["level"]): row
        for row in evaluated(runs, "--cost")
        if row["table"] == "cost"
    }
    assert set(found) == {(t, each) for t in ("pos_x", "neg_x") for each in ("noticed", "stopped")}
    noticed = found["pos_x", "noticed"]
    assert (noticed["reached"], noticed["median_steps"], noticed["steps_after"]) == (1, 3, 5)
    assert noticed["steps_share"] == 5 / 8
    assert noticed["tokens_known"] == 0
    assert found["neg_x", "stopped"]["reached"] == 0
    main([str(runs), "--cost"])
    assert "cost: from onset to decision" in capsys.readouterr().out


def test_leave_one_out(evaluated: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each source is measured with thresholds that were chosen without it."""
    path = tmp_path / "runs.jsonl"
    lines = [
        line(f"{source}{number}", loop=stuck, source=source)
        for source in ("one", "other")
        for number, stuck in enumerate((True, False))
    ]
    path.write_text("\n".join(lines))
    found = evaluated(path, "--leave-one-out", "--jobs", 1)
    left = [row for row in found if row["table"] == "leave_one_out"]
    assert [row["source"] for row in left[:2]] == ["one", "other"]
    assert [row["tier"] for row in left[2:]] == ["neg_x", "pos_x", "all"]
    assert all(row["sensitivity"] in SENSITIVITIES for row in left[:2])
    total = left[-1]
    assert (total["noticed_tp"], total["default_noticed_tp"], total["noticed_fp"]) == (2, 2, 0)
    main([str(path), "--leave-one-out", "--jobs", "1"])
    assert "at most 2 % false notices and 0 % false stops" in capsys.readouterr().out


def test_curve(evaluated: Any, runs: Path, tmp_path: Path) -> None:
    """Its points are written as rows, and come as rows too, whatever the order."""
    path = tmp_path / "curve.jsonl"
    found = evaluated(runs, "--curve", path, "--jobs", 1)
    points = [row for row in found if row["table"] == "curve"]
    assert len(points) == 3 * len(SENSITIVITIES)
    assert {row["tier"] for row in points} == {"pos_x", "neg_x", "all"}
    stuck = [row["noticed"] for row in points if row["tier"] == "pos_x"]
    assert stuck == sorted(stuck)
    assert stuck[-1] == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == points
    assert "pos_x (1)" in picture(points)


@pytest.mark.parametrize(("calls", "stopped_up_to"), [(0, 0), (9, 3)])
def test_trials(calls: int, stopped_up_to: int) -> None:
    """At each sensitivity the highest stop line that stops a run, of those that are tried."""
    run = Run("a", steps=[Step(Kind.TOOL, "search", args={}, outcome="none found")] * calls)
    for lines in (0, 3):
        last = tried(run, Settings(), lines, result_of(run, Settings()))[-1]
        assert (last.noticed, last.line) == (calls > 0, min(lines, stopped_up_to))
