"""`otel-loopguard eval` measures the guard, and other detectors, on labelled runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.curve import picture
from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard.cli import workers
from otel_loopguard.cli.evaluation.scores import Judgement, score
from otel_loopguard.cli.evaluation.trials import SENSITIVITIES, tried, verdicts
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.replay import Run
from otel_loopguard.settings import Settings
from tests.cli.conftest import line

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
    span = {"traceId": "1" * 32, "spanId": "1" * 16, "name": "s", "endTimeUnixNano": "1"}
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    result = command("eval", runs, path, "--format", "json")
    assert result.exit_code == 0
    assert "spans.jsonl: 1 spans have no labels" in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["n"] == 3


def test_shares_have_intervals(objects: Any, runs: Path) -> None:
    """What is found and what is wrongly touched is a share with its 95 % interval."""
    own = objects("eval", runs)[0]
    assert own["table"] == "scores"
    assert (own["noticed_recall"], own["stopped_false"]) == (1.0, 0.0)
    assert own["noticed_recall_low"] == pytest.approx(0.2065, abs=0.001)
    assert own["noticed_recall_high"] == 1.0
    assert own["stopped_false_high"] == pytest.approx(0.7935, abs=0.001)


def test_related_runs_widen_the_interval(objects: Any, tmp_path: Path) -> None:
    """Runs of one group count together."""
    path = tmp_path / "runs.jsonl"
    ways = [(number, number % 4 == 0) for number in range(12)]
    alone = [line(f"r{number}", loop=stuck) for number, stuck in ways]
    path.write_text("\n".join(json.dumps({**json.loads(one), "loop": False}) for one in alone))
    apart = objects("eval", path)[0]
    path.write_text(
        "\n".join(
            json.dumps({**json.loads(one), "loop": False, "group": f"task {number % 4}"})
            for number, one in enumerate(alone)
        )
    )
    grouped = objects("eval", path)[0]
    assert apart["noticed_false"] == grouped["noticed_false"] == 0.25
    assert grouped["noticed_false_high"] > apart["noticed_false_high"]


def test_the_table(command: Any, runs: Path) -> None:
    """A sentence says what came out; then healthy and stuck runs have a table, a row per tier."""
    result = command("eval", runs)
    assert result.exit_code == 0
    said, *tables = result.stdout.splitlines()
    assert said == (
        "0 of 1 healthy runs would have been stopped, 0 noticed; "
        "1 of 1 stuck runs would have been stopped, 1 noticed; 1 have no label."
    )
    healthy, stuck = (row.split() for row in tables if "_x" in row)
    assert healthy[:3] == ["neg_x", "1", "0"]
    assert stuck[:4] == ["pos_x", "1", "1", "0.21-1.00"]


def test_errors(objects: Any, command: Any, tmp_path: Path) -> None:
    """Every miss and every false alarm is listed with rule, message and the steps around it."""
    path = tmp_path / "runs.jsonl"
    wrong = [
        line("alarm", loop=True, calls=6).replace('"loop": true', '"loop": false'),
        line("missed", loop=False, calls=9).replace('"loop": false', '"loop": true'),
        line("well", loop=False),
        line("found", loop=True),
        line("unknown", loop=None, calls=9),
    ]
    path.write_text("\n".join(wrong))
    alarm, missed = (row for row in objects("eval", path, "--errors") if row["table"] == "errors")
    assert (alarm["kind"], alarm["id"], alarm["reason"]) == (
        "false alarm",
        "alarm",
        "identical_call",
    )
    assert "search" in alarm["message"]
    assert [row for row in alarm["around"] if row.startswith(">")] == [
        f'> {alarm["step"]:4} search({{"q": "x"}}) -> nothing was found for this query, sorry'
    ]
    assert (missed["kind"], missed["id"], missed["message"]) == ("missed", "missed", None)
    assert missed["around"][0].startswith(">    0 search(")
    assert len(missed["around"]) == 6
    said = command("eval", path, "--errors").stdout
    assert "false alarm  alarm  (pos_x, 6 steps, onset at step 1)" in said
    assert "missed  missed  (neg_x, 9 steps, onset at step 1)" in said
    assert "hint at step 3 by exact_repeat/identical_call" in said


def test_cost(objects: Any, command: Any, runs: Path) -> None:
    """What a stuck run spent until it was stopped, and after that."""
    found = {
        (row["tier"], row["level"]): row
        for row in objects("eval", runs, "--cost")
        if row["table"] == "cost"
    }
    assert set(found) == {(t, each) for t in ("pos_x", "neg_x") for each in ("noticed", "stopped")}
    noticed = found["pos_x", "noticed"]
    assert (noticed["reached"], noticed["median_steps"], noticed["steps_after"]) == (1, 3, 5)
    assert noticed["steps_share"] == 5 / 8
    assert noticed["tokens_known"] == 0
    assert found["neg_x", "stopped"]["reached"] == 0
    assert "cost: from onset to decision" in command("eval", runs, "--cost").stdout


def test_leave_one_out(objects: Any, command: Any, tmp_path: Path) -> None:
    """Each source is measured with thresholds that were chosen without it."""
    path = tmp_path / "runs.jsonl"
    lines = [
        line(f"{source}{number}", loop=stuck, source=source)
        for source in ("one", "other")
        for number, stuck in enumerate((True, False))
    ]
    path.write_text("\n".join(lines))
    found = objects("eval", path, "--leave-one-out", "--jobs", 1)
    left = [row for row in found if row["table"] == "leave_one_out"]
    assert [row["source"] for row in left[:2]] == ["one", "other"]
    assert [row["tier"] for row in left[2:]] == ["neg_x", "pos_x", "all"]
    assert all(row["sensitivity"] in SENSITIVITIES for row in left[:2])
    total = left[-1]
    assert (total["noticed_tp"], total["default_noticed_tp"], total["noticed_fp"]) == (2, 2, 0)
    said = command("eval", path, "--leave-one-out", "--jobs", 1).stdout
    assert "at most 2 % false notices and 0 % false stops" in said


def test_curve(objects: Any, runs: Path, tmp_path: Path) -> None:
    """Its points are written as rows, and come as rows too, whatever the order."""
    path = tmp_path / "curve.jsonl"
    found = objects("eval", runs, "--curve", path, "--jobs", 1)
    points = [row for row in found if row["table"] == "curve"]
    assert len(points) == 3 * len(SENSITIVITIES)
    assert {row["tier"] for row in points} == {"pos_x", "neg_x", "all"}
    stuck = [row["noticed"] for row in points if row["tier"] == "pos_x"]
    assert stuck == sorted(stuck)
    assert stuck[-1] == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == points
    assert "pos_x (1)" in picture(points)
    objects("eval", runs, "--curve", path, "--jobs", 2)
    assert [json.loads(line) for line in path.read_text().splitlines()] == points


@pytest.mark.parametrize("name", ["curve.svg", "nowhere/curve.jsonl"])
def test_a_curve_that_cannot_be_written(
    command: Any, runs: Path, tmp_path: Path, name: str
) -> None:
    """It is refused before the work."""
    result = command("eval", runs, "--curve", tmp_path / name)
    assert result.exit_code == 2
    assert "expected the name of a .jsonl file" in result.stderr
    assert result.stdout == ""


def test_worker_processes_change_nothing(
    objects: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs go to worker processes; rows are the same and in the same order."""
    monkeypatch.setattr(workers, "_WORTH", 100)
    path = tmp_path / "runs.jsonl"
    lines = [line(f"r{number}", loop=number % 3 == 0, calls=4 + number % 5) for number in range(80)]
    path.write_text("\n".join(lines))
    wanted = ("eval", path, "--leave-one-out", "--errors", "--cost", "--jobs")
    found = objects(*wanted, 1)
    assert found == objects(*wanted, 2)
    assert any(row.get("stopped_tp") for row in found)


def test_few_runs_need_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file is worked on at once, in order."""
    monkeypatch.setattr("otel_loopguard.replay.workers.spread", None)
    made = workers.spread(str, range(300), lambda _: 5, 8)
    assert list(made) == [(number, str(number)) for number in range(300)]


@pytest.mark.parametrize(("calls", "stopped_up_to"), [(0, 0), (9, 3)])
def test_trials(calls: int, stopped_up_to: int) -> None:
    """At each sensitivity the highest stop line that stops a run, of those that are tried."""
    run = Run("a", steps=[Step(Kind.TOOL, "search", args={}, outcome="none found")] * calls)
    for lines in (0, 3):
        last = tried(run, Settings(), lines, result_of(run, Settings()))[-1]
        assert (last.noticed, last.line) == (calls > 0, min(lines, stopped_up_to))
