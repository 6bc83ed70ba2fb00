"""`python -m lab.evaluate`: what only this project asks of its rules, on labelled runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.curve import picture
from lab.baselines import verdicts
from lab.evaluate import main
from lab.left_out import SENSITIVITIES, tried
from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Run, workers
from otel_loopguard.settings import Settings
from tests.cli.conftest import line, runs

__all__ = ["runs"]  # a fixture

BASELINES = """
class Third:
    name = "third"
    def __init__(self): self.n = 0
    def reset(self): self.n = 0
    def step(self, tool, args=None, output=None, error=None, text=None):
        self.n += 1
        return "ask:third" if self.n == 3 else "deny:fourth" if self.n == 4 else None
FIVE = [Third]
"""


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    """Runs it, and gives the objects that it prints."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        assert main([*map(str, arguments), "--format", "json"]) == 0
        return [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    return run


def test_rows(evaluated: Any, runs: Path, tmp_path: Path) -> None:
    """A baseline has the same figures beside the guard's."""
    path = tmp_path / "others.py"
    path.write_text(BASELINES)
    rows = evaluated(runs, "--baselines", path)
    assert [row["detector"] for row in rows] == ["otel-loopguard", "third"] * 6
    third = rows[1]
    assert (third["noticed_tp"], third["noticed_fp"], third["unlabelled_noticed"]) == (1, 1, 1)
    assert (third["noticed_median_steps"], third["stopped_median_steps"]) == (2, 3)


@pytest.fixture
def _swallowing() -> Iterator[None]:
    """Faults are swallowed, as outside of this project's tests."""
    raise_faults(False)
    yield
    raise_faults(True)


class Heard:
    """Records the calls to a baseline."""

    name = "heard"

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def reset(self) -> None:
        self.told.append(("reset",))

    def step(self, *told: object, text: str | None = None) -> str | None:
        self.told.append((*told, text) if text is not None else told)
        return "hint:x" if told[0] is None else None


def test_what_a_baseline_is_told() -> None:
    """A model turn without a call has no tool; the text of one with a call comes with the call."""
    run = Run(
        "r",
        steps=[
            Step(Kind.MODEL, text="thinking"),
            Step(Kind.TOOL, "bash", args="ls", outcome="no", error=True, error_text="no"),
            Step(Kind.TOOL, "find", args={"a": 1}, outcome="E", error=True, error_text="E"),
            Step(Kind.MODEL, text="talk"),
            Step(Kind.OTHER, "user", text="go on"),
            Step(Kind.MODEL, text="bye"),
        ],
    )
    heard = Heard()
    said = list(verdicts(heard, run, InternalErrors()))
    assert heard.told == [
        ("bash", "ls", "no", None, "thinking"),
        ("find", {"a": 1}, None, "E", None),
        (None, "talk"),
        ("reset",),
        (None, "bye"),
    ]
    assert said == [(3, Action.HINT), (5, Action.HINT)]


@pytest.mark.usefixtures("_swallowing")
def test_a_baseline_that_fails() -> None:
    """A baseline that raises is silent from there on, and the fault is counted."""

    class Failing(Heard):
        def step(self, *told: object, text: str | None = None) -> str | None:
            raise RuntimeError

    faults = InternalErrors()
    run = Run("r", steps=[Step(Kind.TOOL, "t")])
    assert list(verdicts(Failing(), run, faults)) == []
    assert sum(faults.counts.values()) == 1


@pytest.mark.usefixtures("_swallowing")
@pytest.mark.parametrize(
    "content", ["", "FIVE = 3", "import nothing_of_this_name", "1/0", "def ("], ids=repr
)
def test_baselines_that_cannot_be_used(runs: Path, tmp_path: Path, content: str) -> None:
    """A file without factories, or one that does not run, is refused with its name."""
    path = tmp_path / "others.py"
    path.write_text(content)
    with pytest.raises(LoopGuardError, match=r"others\.py"):
        main([str(runs), "--baselines", str(path)])


def test_the_scenarios(evaluated: Any, shared: Path) -> None:
    """On the scenarios with the shipped baselines: nothing healthy is stopped by the guard."""
    rows = evaluated(shared / "eval/scenarios.jsonl", "--baselines", shared / "eval/baselines.py")
    everything = {row["detector"]: row for row in rows if row["tier"] == row["source"] == "all"}
    assert len(everything) == 12
    own = everything["otel-loopguard"]
    assert (own["n"], own["loops"], own["healthy"]) == (23, 14, 9)
    assert own["stopped_fp"] == 0
    assert own["noticed_tp"] > 0


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
    evaluated(runs, "--curve", path, "--jobs", 2)
    assert [json.loads(line) for line in path.read_text().splitlines()] == points


def test_worker_processes_change_nothing(
    evaluated: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs go to worker processes; rows are the same and in the same order."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    path = tmp_path / "runs.jsonl"
    lines = [line(f"r{number}", loop=number % 3 == 0, calls=4 + number % 5) for number in range(40)]
    path.write_text("\n".join(lines))
    wanted = (path, "--leave-one-out", "--errors", "--cost", "--jobs")
    assert evaluated(*wanted, 1) == evaluated(*wanted, 2)


@pytest.mark.parametrize(("calls", "stopped_up_to"), [(0, 0), (9, 3)])
def test_trials(calls: int, stopped_up_to: int) -> None:
    """At each sensitivity the highest stop line that stops a run, of those that are tried."""
    run = Run("a", steps=[Step(Kind.TOOL, "search", args={}, outcome="none found")] * calls)
    for lines in (0, 3):
        last = tried(run, Settings(), lines, result_of(run, Settings()))[-1]
        assert (last.noticed, last.line) == (calls > 0, min(lines, stopped_up_to))
