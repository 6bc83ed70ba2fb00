"""`otel-loopguard eval` measures the guard on labelled runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.cli.evaluate import Judgement, score
from otel_loopguard.replay import workers
from tests.cli.conftest import line, spans


def judged(
    loop: bool | None, noticed: int | None, stopped: int | None, onset: int | None = 1
) -> Judgement:
    return Judgement("t", "s", loop, 100, onset, noticed, stopped)


def test_scores() -> None:
    """Shares and medians are those of the definition; what cannot be said is None."""
    about = [
        judged(True, 3, 5), judged(True, 5, None), judged(True, None, None),
        judged(True, 9, None, onset=None), judged(False, 2, 4), judged(False, None, None),
        judged(None, 1, 1), judged(None, None, None),
    ]  # fmt: skip
    row = score(about)
    assert (row["n"], row["loops"], row["healthy"], row["unlabelled"]) == (8, 4, 2, 2)
    assert (row["noticed_tp"], row["noticed_fp"], row["noticed_recall"]) == (3, 1, 0.75)
    assert (row["stopped_tp"], row["stopped_fp"], row["stopped_false"]) == (1, 1, 0.5)
    assert (row["noticed_median_steps"], row["stopped_median_steps"]) == (3, 4)
    unsaid = score([judged(None, None, None)])
    assert unsaid["noticed_recall"] is unsaid["stopped_median_steps"] is None


def test_rows(objects: Any, runs: Path) -> None:
    """There are figures in all, per tier, per source and per both."""
    rows = objects("eval", runs)
    assert [(row["tier"], row["source"]) for row in rows] == [
        ("all", "all"), ("neg_x", "all"), ("neg_x", "src"),
        ("pos_x", "all"), ("pos_x", "src"), ("all", "src"),
    ]  # fmt: skip
    own = rows[0]
    assert (own["n"], own["unlabelled"]) == (3, 1)
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
    called = 'search({"q": "x"}) -> nothing was found for this query, sorry'
    assert [alarm["step"], called] in alarm["around"]
    assert (missed["kind"], missed["id"], missed["message"]) == ("missed", "missed", None)
    assert [index for index, _ in missed["around"]] == [0, 1, 2, 3, 4, 5]
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
