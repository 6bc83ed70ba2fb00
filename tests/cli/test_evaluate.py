"""`otel-loopguard eval` measures the guard, and other detectors, on labelled runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.cli.baselines import verdicts
from otel_loopguard.cli.scores import Judgement, score
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.faults import Faults, raise_faults
from otel_loopguard.recordings import Run

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


def judged(loop: bool | None, noticed: int | None, stopped: int | None, **fields: Any) -> Judgement:
    known = {"detector": "d", "tier": "t", "source": "s", "steps": 100, "onset": 1}
    return Judgement(loop=loop, noticed=noticed, stopped=stopped, **{**known, **fields})


def test_scores() -> None:
    """Precision, recall, false stops per 1,000 steps and medians are those of the definition."""
    row = score(
        "d",
        "t",
        "s",
        [
            judged(True, 3, 5),
            judged(True, 5, None),
            judged(True, None, None),
            judged(True, 9, None, onset=None),
            judged(False, 2, 4),
            judged(False, None, None, steps=300),
            judged(None, 1, 1),
            judged(None, None, None),
        ],
    )
    assert (row["n"], row["loops"], row["healthy"], row["unlabelled"]) == (8, 4, 2, 2)
    assert (row["noticed_tp"], row["noticed_fp"]) == (3, 1)
    assert (row["noticed_precision"], row["noticed_recall"]) == (0.75, 0.75)
    assert row["noticed_median_steps"] == 3
    assert (row["stopped_tp"], row["stopped_fp"]) == (1, 1)
    assert (row["stopped_precision"], row["stopped_recall"]) == (0.5, 0.25)
    assert row["stopped_median_steps"] == 4
    assert row["false_stops_per_1000"] == 1000 / 400
    assert (row["unlabelled_noticed"], row["unlabelled_stopped"]) == (1, 1)


def test_nothing_to_divide_by() -> None:
    """What cannot be said is null."""
    row = score("d", "t", "s", [judged(None, None, None)])
    for name in ("noticed_precision", "noticed_recall", "stopped_median_steps"):
        assert row[name] is None
    assert row["false_stops_per_1000"] is None


def test_rows(objects: Any, runs: Path, tmp_path: Path) -> None:
    """There are figures in all, per tier, per source and per both, for the guard and baselines."""
    path = tmp_path / "others.py"
    path.write_text(BASELINES)
    rows = objects("eval", runs, "--baselines", path)
    slices = [(row["tier"], row["source"]) for row in rows if row["detector"] == "third"]
    assert slices == [
        ("all", "all"),
        ("neg_x", "all"),
        ("pos_x", "all"),
        ("all", "src"),
        ("neg_x", "src"),
        ("pos_x", "src"),
    ]
    own, third = rows[:2]
    assert (own["detector"], own["n"], own["unlabelled"]) == ("otel-loopguard", 3, 1)
    assert (own["noticed_tp"], own["noticed_fp"], own["stopped_tp"]) == (1, 0, 1)
    assert (own["noticed_recall"], own["noticed_median_steps"]) == (1.0, 2)
    assert (third["noticed_tp"], third["noticed_fp"], third["unlabelled_noticed"]) == (1, 1, 1)
    assert (third["noticed_median_steps"], third["stopped_median_steps"]) == (2, 3)


@pytest.fixture
def _swallowing() -> Iterator[None]:
    """Faults are swallowed, as outside of this project's tests."""
    raise_faults(False)
    yield
    raise_faults(True)


class Heard:
    """Writes down what a baseline is told."""

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
    said = list(verdicts(heard, run, Faults()))
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

    faults = Faults()
    run = Run("r", steps=[Step(Kind.TOOL, "t")])
    assert list(verdicts(Failing(), run, faults)) == []
    assert sum(faults.counts.values()) == 1


@pytest.mark.usefixtures("_swallowing")
@pytest.mark.parametrize(
    "content", ["", "FIVE = 3", "import nothing_of_this_name", "1/0", "def ("], ids=repr
)
def test_baselines_that_cannot_be_used(
    command: Any, runs: Path, tmp_path: Path, content: str
) -> None:
    """A file without factories, or one that does not run, is refused with its name."""
    path = tmp_path / "others.py"
    path.write_text(content)
    result = command("eval", runs, "--baselines", path)
    assert result.exit_code == 2
    assert str(path) in result.stderr


def test_the_scenarios(objects: Any, shared: Path) -> None:
    """On the scenarios with the shipped baselines: nothing healthy is stopped by the guard."""
    rows = objects(
        "eval", shared / "eval/scenarios.jsonl", "--baselines", shared / "eval/baselines.py"
    )
    everything = {row["detector"]: row for row in rows if row["tier"] == row["source"] == "all"}
    assert len(everything) == 12
    own = everything["otel-loopguard"]
    assert (own["n"], own["loops"], own["healthy"]) == (23, 14, 9)
    assert own["stopped_fp"] == 0
    assert own["noticed_tp"] > 0


def test_spans_have_no_labels(command: Any, runs: Path, tmp_path: Path) -> None:
    """A file of spans is named on standard error and left out; that is no fault."""
    path = tmp_path / "spans.jsonl"
    span = {"traceId": "1" * 32, "spanId": "1" * 16, "name": "s"}
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    result = command("eval", runs, path, "--format", "json")
    assert result.exit_code == 0
    assert "spans.jsonl: 1 spans have no labels" in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["n"] == 3


def test_the_table(command: Any, runs: Path) -> None:
    """The table has a row per slice and detector."""
    result = command("eval", runs)
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if "otel-loopguard" in line]
    assert [line.split()[:2] for line in lines] == [
        ["all", "all"],
        ["neg_x", "all"],
        ["pos_x", "all"],
        ["all", "src"],
    ]
