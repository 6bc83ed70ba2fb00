"""Detection on labelled runs: `otel-loopguard eval`, with what only this project asks of its rules.

    python -m lab.evaluate FILE... [--leave-one-out] [--cost] [--errors] [--curve FILE.jsonl]

adds thresholds that were chosen without the runs that they are measured on, what a decision saves,
and figures at other sensitivities. `make eval` runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from lab import left_out
from lab.costs import Cost, cost_rows, costs
from lab.intervals import of_judgements
from lab.left_out import LINES, SENSITIVITIES, Limits, Tried, tried
from otel_loopguard.cli.evaluate import (
    ALL,
    LEVELS,
    Judgement,
    judgement,
    labelled_runs,
    mistake,
    score_rows,
    show_mistakes,
    show_scores,
    show_table,
)
from otel_loopguard.cli.output import Inputs, json_line, keep_faults
from otel_loopguard.cli.replay import result_of
from otel_loopguard.replay.workers import spread
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.replay import Run

Row = Mapping[str, object]
LEFT_OUT = (
    *("source or tier", "sensitivity#", "stop line#", "stuck#", "noticed#", "stopped#"),
    *("healthy#", "noticed#", "stopped#"),
)
COSTS = {
    "tier": "tier", "level": "level", "n": "runs#", "reached": "reached#",
    "median_steps": "median steps to it#", "steps_after": "steps after it#",
    "steps_share": "share#", "tokens_known": "runs with tokens#",
    "median_tokens": "median tokens to it#", "tokens_after": "tokens after it#",
    "tokens_share": "share#",
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What was measured of one run."""

    own: Judgement
    mistake: Row | None
    costs: list[Cost] = field(default_factory=list[Cost])
    trials: Tried | None = None  # None for a run without a label, too


def measure(run: Run, settings: Settings, lines: int | None) -> Measured:
    """Measures the guard on a run; `lines` asks for trials."""
    result = result_of(run, settings)
    own = judgement(run, result)
    trials = None
    if lines is not None and run.loop is not None:
        trials = tried(run, settings, lines, result)
    return Measured(own, mistake(run, result), list(costs(run, own)), trials)


def curve_rows(pairs: Sequence[tuple[Judgement, Tried]]) -> Iterator[dict[str, object]]:
    """One row per sensitivity and tier of runs with a label, and for all healthy runs together."""
    slices = sorted({(judged.loop is True, judged.tier) for judged, _ in pairs})
    for place, sensitivity in enumerate(SENSITIVITIES):
        for loop, tier in (*slices, (False, ALL)):
            trials = [
                tried[place]
                for judged, tried in pairs
                if judged.loop is loop and tier in (ALL, judged.tier)
            ]
            yield {
                "table": "curve",
                "sensitivity": sensitivity,
                "tier": tier,
                "loops": loop,
                "n": len(trials),
                "noticed": sum(trial.noticed for trial in trials),
                "stopped": sum(trial.stopped for trial in trials),
            }


def show_left_out(rows: Sequence[Row], limits: Limits) -> None:
    """Prints what thresholds chosen on all other sources do on the one left out."""
    cells = [
        (
            row["source"] if row["source"] != ALL else f"tier {row['tier']}",
            row["sensitivity"],
            "none" if row["sensitivity"] and row["line"] is None else row["line"],
            row["loops"], *_beside(row, "tp"), row["healthy"], *_beside(row, "fp"),
        )
        for row in rows
    ]  # fmt: skip
    title = (
        f"leave one source out: thresholds chosen on the others, at most "
        f"{100 * limits.false_notices:g} % false notices and {100 * limits.false_stops:g} % false "
        f"stops there; in brackets with the settings as they are"
    )
    show_table(title, LEFT_OUT, cells)


def _beside(row: Row, kind: str) -> list[str]:
    names = [f"{level}_{kind}" for level in LEVELS]
    return [f"{row[name]} ({row[f'default_{name}']})" for name in names]


def show_costs(rows: Sequence[Row]) -> None:
    """Prints what was spent from onset to decision, and after it."""
    cells = [[_figure(name, row[name]) for name in COSTS] for row in rows]
    show_table("cost: from onset to decision, and from there to the end", [*COSTS.values()], cells)


def _figure(name: str, value: object) -> object:
    if isinstance(value, float) and name.endswith("share"):
        return f"{100 * value:.0f} %"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the figures that are asked for; 1 if a line of the files was broken, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--errors", action="store_true", help="shows content")
    parser.add_argument("--curve", type=Path, help="a file of JSON lines to write")
    parser.add_argument("--jobs", type=int, default=0)
    asked = parser.parse_args(arguments)
    limits = Limits()
    settings = Settings()
    lines = LINES if asked.leave_one_out else 0 if asked.curve else None
    replays = 1 if lines is None else (1 + lines) * len(SENSITIVITIES)
    work = partial(measure, settings=settings, lines=lines)
    with Inputs(asked.files) as inputs:
        runs = labelled_runs(inputs)
        steps = partial(_replayed_steps, replays)
        found = list(spread(work, runs, asked.jobs, keep_faults, steps))
    pairs = [(one.own, one.trials) for one in found if one.trials is not None]
    scores = list(score_rows([one.own for one in found], of_judgements))
    left = list(left_out.rows(pairs, limits, settings.deny_after)) if asked.leave_one_out else []
    spent = list(cost_rows([cost for one in found for cost in one.costs])) if asked.cost else []
    mistakes = [one.mistake for one in found if one.mistake is not None] if asked.errors else []
    curve = list(curve_rows(pairs)) if asked.curve else []
    if asked.format == "json":
        for row in (*scores, *left, *spent, *mistakes, *curve):
            json_line(row)
    else:
        show_scores(scores)
        if left:
            show_left_out(left, limits)
        if spent:
            show_costs(spent)
        show_mistakes(mistakes)
    if asked.curve:
        asked.curve.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in curve))
    return inputs.code


def _replayed_steps(replays: int, run: Run) -> int:
    return len(run.steps) * replays


if __name__ == "__main__":
    raise SystemExit(main())
