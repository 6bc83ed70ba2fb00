"""`otel-loopguard eval` measures the guard on labelled runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.cli.evaluate import Judgement, interval, score, wilson
from otel_loopguard.replay import workers
from tests.cli.conftest import line, spans


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
    unsaid = score("d", "t", "s", [judged(None, None, None)])
    names = ("noticed_precision", "noticed_recall", "stopped_median_steps", "false_stops_per_1000")
    assert [unsaid[name] for name in names] == [None] * 4


def test_rows(objects: Any, runs: Path) -> None:
    """There are figures in all, per tier, per source and per both."""
    rows = objects("eval", runs)
    assert [(row["tier"], row["source"]) for row in rows] == [
        ("all", "all"), ("neg_x", "all"), ("pos_x", "all"),
        ("all", "src"), ("neg_x", "src"), ("pos_x", "src"),
    ]  # fmt: skip
    own = rows[0]
    assert (own["detector"], own["n"], own["unlabelled"]) == ("otel-loopguard", 3, 1)
    assert (own["noticed_tp"], own["noticed_fp"], own["stopped_tp"]) == (1, 0, 1)
    assert (own["noticed_recall"], own["noticed_median_steps"]) == (1.0, 2)
    assert (own["noticed_recall_high"], own["stopped_false"]) == (1.0, 0.0)
    assert own["noticed_recall_low"] == pytest.approx(0.2065, abs=0.001)
    assert own["stopped_false_high"] == pytest.approx(0.7935, abs=0.001)


def test_spans_have_no_labels(command: Any, runs: Path, tmp_path: Path) -> None:
    """A file of spans is named on standard error and left out; that is no fault."""
    path = tmp_path / "spans.jsonl"
    path.write_text(spans(1))
    result = command("eval", runs, path, "--format", "json")
    assert result.exit_code == 0
    assert "spans.jsonl: 1 spans have no labels" in result.stderr
    assert json.loads(result.stdout.splitlines()[0])["n"] == 3


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


def test_worker_processes_change_nothing(
    objects: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many runs go to worker processes; rows are the same and in the same order."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    path = tmp_path / "runs.jsonl"
    lines = [line(f"r{number}", loop=number % 3 == 0, calls=4 + number % 5) for number in range(80)]
    path.write_text("\n".join(lines))
    wanted = ("eval", path, "--errors", "--jobs")
    found = objects(*wanted, 1)
    assert found == objects(*wanted, 2)
    assert any(row.get("stopped_tp") for row in found)


def test_related_runs_say_less() -> None:
    """Ten runs of one task that all go the same way say as much as about one run."""
    related = [(f"task {i % 10}", i % 10 < 5) for i in range(100)]
    alone = interval([("", hit) for _, hit in related])
    found = interval(related)
    assert found is not None
    assert alone is not None
    assert found[1] - found[0] > 2 * (alone[1] - alone[0])
    assert found[0] < 0.5 < found[1]


def test_the_same_every_time() -> None:
    """Drawing begins at a fixed seed, and the order of the runs does not matter."""
    runs = [(f"task {i % 7}", i % 3 == 0) for i in range(50)]
    assert interval(runs) == interval(runs[::-1])


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        ([("", False)] * 428, 0.0, 0.0089),
        ([("", True)] * 17 + [("", False)] * 5, 0.566, 0.899),
        ([("", True)] * 72, 0.949, 1.0),
        ([("", True), ("", False)], 0.0945, 0.9055),
        ([(f"task {i}", i < 3) for i in range(9)], *wilson(3, 9)),
        ([(f"task {i % 10}", False) for i in range(100)], *wilson(0, 10)),
        ([(f"task {i % 10}", True) for i in range(100)], *wilson(10, 10)),
    ],
    ids=["none", "most", "all", "one of two", "each its own group", "no group", "all groups"],
)
def test_intervals(found: list[tuple[str, bool]], low: float, high: float) -> None:
    """Wilson's; where drawing groups shows no spread, with the groups as its number."""
    assert interval(found) == pytest.approx((low, high), abs=0.0005)
    assert interval([]) is None
