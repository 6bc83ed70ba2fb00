"""`eval`: the guard, and other detectors beside it, measured on labelled runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import typer

from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.cli.evaluation import left_out
from otel_loopguard.cli.evaluation.left_out import Limits
from otel_loopguard.cli.evaluation.scores import (
    ALL,
    LEVELS,
    Cost,
    Judgement,
    Mistake,
    cost_rows,
    costs,
    judgement,
    mistake,
    score_rows,
)
from otel_loopguard.cli.evaluation.trials import (
    LINES,
    SENSITIVITIES,
    Tried,
    load,
    tried,
    verdicts,
)
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, json_line, say, table
from otel_loopguard.cli.replay import result_of
from otel_loopguard.cli.workers import spread
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Run

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.settings import Settings

NAME: Final = "otel-loopguard"
"""Name of the guard among the detectors."""

_Row = Mapping[str, object]
_RATES: Final = ("runs#", "noticed#", "95 %", "stopped#", "95 %")
_TABLES: Final = (
    ("healthy", "healthy", "fp", "false", {"stops per 1,000 steps#": "false_stops_per_1000"}),
    (
        *("stuck", "loops", "tp", "recall"),
        {"steps to notice#": "noticed_median_steps", "to stop#": "stopped_median_steps"},
    ),
)
"""What a table is of, the fields with its runs, and the headings and fields of its last columns."""
_LEFT_OUT: Final = (
    *("source or tier", "sensitivity#", "stop line#", "stuck#", "noticed#", "stopped#"),
    *("healthy#", "noticed#", "stopped#"),
)
_COSTS: Final = {
    "tier": "tier", "level": "level", "n": "runs#", "reached": "reached#",
    "median_steps": "median steps to it#", "steps_after": "steps after it#",
    "steps_share": "share#", "tokens_known": "runs with tokens#",
    "median_tokens": "median tokens to it#", "tokens_after": "tokens after it#",
    "tokens_share": "share#",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command: what to measure besides the scores."""

    baselines: str | None = None  # a Python file, see `trials`
    leave_one_out: bool = False
    limits: Limits = field(default_factory=Limits)
    cost: bool = False
    errors: bool = False
    curve: str | None = None
    jobs: int = 0


@dataclass(slots=True)
class _Evaluation:
    """What was measured of all runs."""

    own: list[Judgement] = field(default_factory=list[Judgement])
    others: list[Judgement] = field(default_factory=list[Judgement])  # of the baselines
    costs: list[Cost] = field(default_factory=list[Cost])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    trials: list[tuple[Judgement, Tried]] = field(default_factory=list["tuple[Judgement, Tried]"])


def print_evaluation(
    files: Sequence[str], form: Format, settings: Settings, options: Options
) -> int:
    """Evaluates labelled runs and prints one object or row per slice and detector.

    Spans have no labels; files of them are named on standard error and left out. Gives the exit
    code.
    """
    points = _curve_file(options.curve)
    with Inputs(files) as inputs:
        found = _evaluated(inputs, settings, options)
    scores = list(score_rows([*found.own, *found.others]))
    left = (
        list(left_out.rows(found.trials, options.limits, settings.deny_after))
        if options.leave_one_out
        else []
    )
    spent = list(cost_rows(found.costs))
    curve = list(curve_rows(found.trials)) if points else []
    if form is Format.JSON:
        mistakes = (wrong.row() for wrong in found.mistakes)
        for row in chain(scores, left, spent, mistakes, curve):
            json_line(row)
    else:
        _show_scores(scores)
        _show_left_out(left, options.limits)
        _show_costs(spent)
        _show_mistakes(found.mistakes)
    if points:
        points.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in curve))
    return inputs.code


def _curve_file(name: str | None) -> Path | None:
    path = None if name is None else Path(name)
    if path and (path.suffix != ".jsonl" or not path.parent.is_dir() or path.is_dir()):
        msg = f"--curve {path}: expected the name of a .jsonl file in a folder that exists"
        raise LoopGuardError(msg)
    return path


def _evaluated(inputs: Inputs, settings: Settings, options: Options) -> _Evaluation:
    """Replays all runs, spread over processes, and measures what the options ask for."""
    found = _Evaluation()
    factories = load(options.baselines) if options.baselines else ()
    faults = InternalErrors()
    lines = LINES if options.leave_one_out else 0
    tries = options.leave_one_out or options.curve is not None
    work = partial(_result, settings=settings, lines=lines if tries else None)
    replays = (1 + lines) * len(SENSITIVITIES) if tries else 1
    for run, (result, trials) in spread(
        work, _runs(inputs), lambda run: len(run.steps) * replays, options.jobs
    ):
        judged = judgement(NAME, run, ((one.step, one.action) for one in result.decisions))
        found.own.append(judged)
        for factory in factories:
            baseline = factory()
            said = verdicts(baseline, run, faults)
            found.others.append(judgement(baseline.name, run, said))
        if options.cost:
            found.costs += costs(run, judged)
        if options.errors and (wrong := mistake(run, result)) is not None:
            found.mistakes.append(wrong)
        if trials is not None:
            found.trials.append((judged, trials))
    return found


def _result(run: Run, settings: Settings, lines: int | None) -> tuple[ReplayResult, Tried | None]:
    """The result of a run, and its trials if it has a label and `lines` asks for them."""
    result = result_of(run, settings)
    if lines is None or run.loop is None:
        return result, None
    return result, tried(run, settings, lines, result)


def _runs(inputs: Inputs) -> Iterator[Run]:
    for recording in inputs:
        spans = 0
        for entry in inputs.entries(recording):
            if isinstance(entry, Run):
                yield entry
            else:
                spans += 1
        if spans:
            inputs.note(f"{recording.name}: {spans:,} spans have no labels and are left out")


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


def _show_scores(rows: Sequence[_Row]) -> None:
    """Prints a sentence about all runs, then the stuck ones and the healthy ones by tier."""
    whole = rows[0]
    told = [
        f"{whole[f'stopped_{kind}']} of {whole[runs]} {title} runs would have been stopped, "
        f"{whole[f'noticed_{kind}']} noticed"
        for title, runs, kind, *_ in _TABLES
        if whole[runs]
    ]
    told += [f"{whole['unlabelled']} have no label"] if whole["unlabelled"] else []
    console().print(cell(f"{'; '.join(told)}."))
    compared = any(row["detector"] != whole["detector"] for row in rows)
    first = "tier, source: detector" if compared else "tier, source"
    for title, runs, kind, share, last in _TABLES:
        cells = [
            [
                f"{place}: {row['detector']}" if compared else place,
                row[runs],
                *_rates(row, kind, share),
                *(row[name] for name in last.values()),
            ]
            for place, row in _listed(rows, runs)
        ]
        if cells:
            _print(f"{title} runs", (first, *_RATES, *last), cells)


def _listed(rows: Sequence[_Row], runs: str) -> Iterator[tuple[str, _Row]]:
    """The rows with such runs: of all, of each tier, and below it of its sources if several."""
    tiers: dict[object, list[_Row]] = {}
    for row in rows:
        if row[runs] and (row["tier"] != ALL or row["source"] == ALL):
            tiers.setdefault(row["tier"], []).append(row)
    for tier, about in tiers.items():
        several = len({row["source"] for row in about}) > 2
        for row in about if tier != ALL or len(tiers) > 2 else ():
            if row["source"] == ALL:
                yield str(tier), row
            elif several:
                yield f"  {row['source']}", row


def _rates(row: _Row, kind: str, share: str) -> Iterator[object]:
    for level in LEVELS:
        low, high = row[f"{level}_{share}_low"], row[f"{level}_{share}_high"]
        known = isinstance(low, float) and isinstance(high, float)
        yield row[f"{level}_{kind}"]
        yield f"{low:.2f}-{high:.2f}" if known else None


def _show_left_out(rows: Sequence[_Row], limits: Limits) -> None:
    """Prints what thresholds chosen on all other sources do on the one left out."""
    if not rows:
        return
    cells = [
        (
            row["source"] if row["source"] != ALL else f"tier {row['tier']}",
            row["sensitivity"],
            "none" if row["sensitivity"] and row["line"] is None else row["line"],
            row["loops"], *_beside(row, "tp"), row["healthy"], *_beside(row, "fp"),
        )
        for row in rows
    ]  # fmt: skip
    _print(
        f"leave one source out: thresholds chosen on the others, at most "
        f"{100 * limits.false_notices:g} % false notices and {100 * limits.false_stops:g} % false "
        f"stops there; in brackets with the settings as they are",
        _LEFT_OUT,
        cells,
    )


def _beside(row: _Row, kind: str) -> list[str]:
    names = [f"{level}_{kind}" for level in LEVELS]
    return [f"{row[name]} ({row[f'default_{name}']})" for name in names]


def _show_costs(rows: Sequence[_Row]) -> None:
    """Prints what was spent from onset to decision, and after it."""
    if not rows:
        return
    cells = [[_figure(name, row[name]) for name in _COSTS] for row in rows]
    _print("cost: from onset to decision, and from there to the end", [*_COSTS.values()], cells)


def _figure(name: str, value: object) -> object:
    if isinstance(value, float) and name.endswith("share"):
        return f"{100 * value:.0f} %"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else value


def _show_mistakes(mistakes: Sequence[Mistake]) -> None:
    """Prints what was missed and what was wrongly noticed, with the steps around it."""
    for wrong in sorted(mistakes, key=lambda one: (one.kind, one.tier)):
        typer.echo("")
        for text in wrong.text():
            console().print(cell(text))


def _print(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    typer.echo("")
    say(title)
    console().print(table(columns, rows))
