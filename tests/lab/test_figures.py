"""Figures on labelled runs: what a decision saves, how far a share counts, other thresholds."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.curve import picture
from lab.costs import Cost, cost_rows, costs
from lab.evaluate import main
from lab.intervals import interval
from lab.left_out import LINES, SENSITIVITIES, Limits, Trial, Tried, choose, rows, tried
from otel_loopguard import Settings
from otel_loopguard.cli.evaluate import Judgement, wilson
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Run
from tests.cli.conftest import line, runs
from tests.tables import rows as cases

__all__ = ["runs"]  # a fixture

Evaluated = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Evaluated:
    """Runs it, and gives the objects that it prints."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        assert main([*map(str, arguments), "--format", "json"]) == 0
        return [json.loads(row) for row in capsys.readouterr().out.splitlines()]

    return run


def test_cost(evaluated: Evaluated, capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    """What a stuck run spent until it was stopped, and after that."""
    printed = [row for row in evaluated(runs, "--cost") if row["table"] == "cost"]
    found = {(row["tier"], row["level"]): row for row in printed}
    assert set(found) == {(t, each) for t in ("pos_x", "neg_x") for each in ("noticed", "stopped")}
    noticed = found["pos_x", "noticed"]
    assert (noticed["reached"], noticed["median_steps"], noticed["steps_after"]) == (1, 3, 5)
    assert (noticed["steps_share"], noticed["tokens_known"]) == (5 / 8, 0)
    assert found["neg_x", "stopped"]["reached"] == 0
    main([str(runs), "--cost"])
    assert "cost: from onset to decision" in capsys.readouterr().out


def test_leave_one_out(
    evaluated: Evaluated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each source is measured with thresholds that were chosen without it."""
    path = tmp_path / "runs.jsonl"
    sources = [(source, stuck) for source in ("one", "other") for stuck in (True, False)]
    path.write_text(
        "\n".join(line(f"{source} {stuck}", loop=stuck, source=source) for source, stuck in sources)
    )
    found = evaluated(path, "--leave-one-out", "--jobs", 1)
    *left, total = (row for row in found if row["table"] == "leave_one_out")
    assert [row["source"] for row in left[:2]] == ["one", "other"]
    assert [row["tier"] for row in left[2:]] == ["neg_x", "pos_x"]
    assert all(row["sensitivity"] in SENSITIVITIES for row in left[:2])
    assert (total["noticed_tp"], total["default_noticed_tp"], total["noticed_fp"]) == (2, 2, 0)
    main([str(path), "--leave-one-out", "--jobs", "1"])
    assert "at most 2 % false notices and 0 % false stops" in capsys.readouterr().out


def test_curve(evaluated: Evaluated, runs: Path, tmp_path: Path) -> None:
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


def of(
    loop: bool | None, onset: int | None, noticed: int | None, stopped: int | None,
    tokens: int | None = 10,
) -> list[Cost]:  # fmt: skip
    """The costs of a run of 20 model calls."""
    steps = [Step(Kind.MODEL, tokens_out=tokens) for _ in range(20)]
    judged = Judgement("t", "s", loop, 20, onset, noticed, stopped)
    return list(costs(Run("r", "s", "t", loop, onset, steps=steps), judged))


@pytest.mark.parametrize(("_", "spent", "level", "said"), cases(__file__, "spent"))
def test_what_a_run_spends_up_to_a_decision_and_after_it(
    _: str, spent: str, level: str, said: str
) -> None:
    all_of_it = [cost for run in json.loads(spent) for cost in of(*run)]
    found = next(row for row in cost_rows(all_of_it) if row["level"] == level)
    wanted = {"reached": 1, "loops": 1, **json.loads(said)}
    assert {name: found[name] for name in wanted} == wanted


def test_runs_that_say_nothing() -> None:
    """A run without a label, or stuck without an onset, has no cost."""
    assert [*of(None, 3, 3, 4), *of(True, None, 3, 4)] == []


Pair = tuple[Judgement, Tried]


def stuck(noticed_from: float | None, line: int = 0, *, loop: bool = True, **more: Any) -> Pair:
    """A run that is noticed from a sensitivity on, and stopped up to a line then."""
    judged = Judgement(more.get("tier", "t"), more.get("source", "a"), loop, 10, None, None, None)
    trials = tuple(
        Trial(each, seen, seen and line > 0, line if seen else 0)
        for each in SENSITIVITIES
        for seen in [noticed_from is not None and each >= noticed_from]
    )
    return judged, trials


def healthy(noticed_from: float | None = None, line: int = 0, **more: Any) -> Pair:
    return stuck(noticed_from, line, loop=False, **more)


FOUND = [stuck(2.0), stuck(1.5), healthy(2.0), *[healthy()] * 9]
STOPPED = [stuck(0.5, 3), healthy(1.0, 2)]
TIERS = [*[stuck(0.5, tier="big")] * 50, stuck(1.25, tier="small")]


@pytest.mark.parametrize(
    ("pairs", "limits", "lines", "sensitivity", "line"),
    [
        pytest.param([stuck(0.5, LINES), healthy()], Limits(), 2, 1.0, 2, id="nothing is gained"),
        pytest.param(FOUND, Limits(false_notices=0.1), 1, 2.0, 1, id="more is found"),
        pytest.param(FOUND, Limits(false_notices=0.05), 1, 1.5, 1, id="up to the limit"),
        pytest.param(STOPPED, Limits(1), 1, 1.0, 3, id="nothing healthy is stopped"),
        pytest.param(STOPPED, Limits(1, 1), 1, 1.0, 1, id="unless it may be"),
        pytest.param(
            [healthy(0.5, LINES), stuck(0.5, LINES)], Limits(), 1, SENSITIVITIES[0], LINES + 1,
            id="the most careful where every one hurts",
        ),
        pytest.param(TIERS, Limits(), 1, 1.25, 1, id="tiers weigh the same"),
    ],
)  # fmt: skip
def test_thresholds_are_chosen_within_limits(
    pairs: list[Pair], limits: Limits, lines: int, sensitivity: float, line: int
) -> None:
    place, chosen = choose(pairs, limits, lines)
    assert (SENSITIVITIES[place], chosen) == (sensitivity, line)


def test_a_source_is_measured_with_what_others_chose() -> None:
    """The figures of a source do not rest on its own runs."""
    pairs = [stuck(1.5, 1), healthy(), stuck(1.5, 1, source="b"), healthy(1.5, source="b")]
    found = {(row["tier"], row["source"]): row for row in rows(pairs, Limits(), 1)}
    assert list(found) == [("all", "a"), ("all", "b"), ("t", "all"), ("all", "all")]
    # Without a, b's own healthy run forbids more; without b nothing does.
    assert found["all", "a"]["sensitivity"] == 1.0
    assert found["all", "b"]["sensitivity"] == 1.5
    assert [found["all", each]["noticed_tp"] for each in ("a", "b", "all")] == [0, 1, 1]
    assert [found["all", each]["noticed_fp"] for each in ("a", "b", "all")] == [0, 1, 1]
    assert found["all", "b"]["stopped_tp"] == 1
    assert found["all", "all"]["default_noticed_tp"] == 0


def test_related_runs_say_less() -> None:
    """Ten runs of one task that all go the same way say as much as about one run, in any order."""
    related = [(f"task {i % 10}", i % 10 < 5) for i in range(100)]
    alone, found = interval([("", hit) for _, hit in related]), interval(related)
    assert found is not None
    assert alone is not None
    assert found[1] - found[0] > 2 * (alone[1] - alone[0])
    assert found[0] < 0.5 < found[1]
    assert interval(related[::-1]) == found
    assert interval([]) is None


@pytest.mark.parametrize(("_name", "runs", "said"), cases(__file__, "intervals"))
def test_intervals(_name: str, runs: str, said: str) -> None:
    """Wilson's; where drawing groups shows no spread, with the groups as its number."""
    hits, count, *groups = map(int, re.findall(r"\d+", runs))
    found = [(f"task {i % groups[0]}" if groups else "", i < hits) for i in range(count)]
    numbers = [float(number) for number in re.findall(r"[\d.]+", said)]
    low, high = numbers if " to " in said else wilson(*map(int, numbers))
    assert interval(found) == pytest.approx((low, high), abs=0.0005)
