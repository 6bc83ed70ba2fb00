"""`eval`: the guard, and other detectors beside it, measured on labelled runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.cli.evaluation import curve, left_out
from otel_loopguard.cli.evaluation import scores as cost
from otel_loopguard.cli.evaluation.left_out import Limits
from otel_loopguard.cli.evaluation.scores import (
    ALL,
    Judgement,
    Mistake,
    judgement,
    mistake,
    score_rows,
)
from otel_loopguard.cli.evaluation.trials import LINES, Factory, Trials, Tried, load, verdicts
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, json_line, line, table
from otel_loopguard.cli.replay import account_of
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Recording, Run

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from otel_loopguard.settings import Settings

_Row = Mapping[str, object]

_STUCK: Final = ("stuck#", "noticed#", "95 %", "stopped#", "95 %", "steps to notice#", "to stop#")
_HEALTHY: Final = ("healthy#", "noticed#", "95 %", "stopped#", "95 %", "stops/1000 steps#")


def show_scores(rows: Iterable[_Row]) -> None:
    """Prints a table per tier, its sources below all of it, and one for all tiers together."""
    known = list(rows)
    for tier in dict.fromkeys(row["tier"] for row in known):
        about = [row for row in known if row["tier"] == tier]
        whole = [row for row in about if row["source"] == ALL]
        sources = {row["source"] for row in about} - {ALL}
        # A tier of one source says the same twice.
        _print(f"tier {tier}", _scores(about if len(sources) > 1 else whole))


def show_left_out(rows: Iterable[_Row], limits: Limits) -> None:
    """Prints what thresholds chosen on all other sources do on the one left out."""
    known = list(rows)
    if not known:
        return
    title = (
        f"leave one source out: thresholds chosen on the others, at most "
        f"{100 * limits.false_notices:g} % false notices and {100 * limits.false_stops:g} % false "
        f"stops there; in brackets with the settings as they are"
    )
    names = ("source or tier", "sensitivity#", "stop line#", "stuck#", "noticed#", "stopped#")
    grid = table((*names, "healthy#", "noticed#", "stopped#"))
    for row in known:
        grid.add_row(
            cell(row["source"] if row["source"] != ALL else f"tier {row['tier']}", 50),
            cell(row["sensitivity"]),
            cell("none" if row["sensitivity"] and row["line"] is None else row["line"]),
            cell(row["loops"]), *_beside(row, "tp"), cell(row["healthy"]), *_beside(row, "fp"),
        )  # fmt: skip
    _print(title, grid)


def show_costs(rows: Iterable[_Row]) -> None:
    """Prints what was spent from onset to decision, and after it."""
    known = list(rows)
    if not known:
        return
    names = ("tier", "level", "runs#", "reached#", "median steps to it#", "steps after it#")
    more = ("share#", "runs with tokens#", "median tokens to it#", "tokens after it#", "share#")
    grid = table((*names, *more))
    fields = ("tier", "level", "n", "reached", "median_steps", "steps_after", "steps_share")
    tokens = ("tokens_known", "median_tokens", "tokens_after", "tokens_share")
    for row in known:
        grid.add_row(*(_figure(name, row[name]) for name in (*fields, *tokens)))
    _print("cost: from onset to decision, and from there to the end", grid)


def show_mistakes(mistakes: Sequence[Mistake]) -> None:
    """Prints what was missed and what was wrongly noticed, with the steps around it."""
    for wrong in sorted(mistakes, key=lambda one: (one.kind, one.tier)):
        for said in wrong.text():
            typer.echo(said)
        typer.echo("")


def _scores(rows: Sequence[_Row]) -> Table:
    stuck, healthy = any(row["loops"] for row in rows), any(row["healthy"] for row in rows)
    heads = ("source", "detector", "runs#")
    more = (*(_STUCK if stuck else ()), *(_HEALTHY if healthy else ()))
    grid = table((*heads, *more))
    for source, group in groupby(rows, key=lambda row: row["source"]):
        for row in group:
            cells = [cell(source, 50), cell(row["detector"], 24), cell(row["n"])]
            if stuck:
                cells += [cell(row["loops"]), *_rates(row, "tp", "recall")]
                cells += [cell(row["noticed_median_steps"]), cell(row["stopped_median_steps"])]
            if healthy:
                cells += [cell(row["healthy"]), *_rates(row, "fp", "false")]
                cells.append(cell(row["false_stops_per_1000"]))
            grid.add_row(*cells)
        grid.add_section()
    return grid


def _rates(row: _Row, kind: str, share: str) -> list[Text]:
    return [
        shown
        for level in ("noticed", "stopped")
        for shown in (
            cell(row[f"{level}_{kind}"]),
            cell(_span(row[f"{level}_{share}_low"], row[f"{level}_{share}_high"])),
        )
    ]


def _span(low: object, high: object) -> str | None:
    if not isinstance(low, float) or not isinstance(high, float):
        return None
    return f"{low:.2f}-{high:.2f}"


def _beside(row: _Row, kind: str) -> list[Text]:
    return [
        cell(f"{row[f'{level}_{kind}']} ({row[f'default_{level}_{kind}']})")
        for level in ("noticed", "stopped")
    ]


def _figure(name: str, value: object) -> Text:
    if isinstance(value, float) and name.endswith("share"):
        return cell(f"{100 * value:.0f} %")
    return cell(f"{value:,.0f}" if isinstance(value, (int, float)) else value)


def _print(title: str, grid: Table) -> None:
    typer.echo(line(title, 400))
    out = console()
    out.print(grid)
    out.print()


NAME: Final = "otel-loopguard"
"""Name of the guard among the detectors."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured beside the scores.

    Attributes:
        baselines: Python file with other detectors; see `baselines`.
        leave_one_out: Whether to leave each source out once.
        limits: What thresholds may do wrong on the runs that they are chosen on.
        cost: Whether to count what stuck runs spent.
        errors: Whether to list what was missed and what was wrongly noticed.
        curve: SVG file that the curve is written to.
        jobs: Worker processes for `leave_one_out` and `curve`; 0 for one per processor.
    """

    baselines: str | None = None
    leave_one_out: bool = False
    limits: Limits = field(default_factory=Limits)
    cost: bool = False
    errors: bool = False
    curve: str | None = None
    jobs: int = 0


@dataclass(slots=True)
class _Found:
    """What was found in the runs so far."""

    own: list[Judgement] = field(default_factory=list[Judgement])
    others: list[Judgement] = field(default_factory=list[Judgement])
    costs: list[cost.Cost] = field(default_factory=list[cost.Cost])
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    tried: list[Tried] = field(default_factory=list[Tried])


def print_evaluation(files: Sequence[str], form: Format, settings: Settings, wanted: Wanted) -> int:
    """Evaluates labelled runs and prints one object or row per slice and detector.

    Spans have no labels; files of them are named on standard error and left out. Gives the exit
    code.
    """
    _check(wanted.curve)
    factories = load(wanted.baselines) if wanted.baselines else ()
    found = _Found()
    faults = InternalErrors()
    with Inputs(files) as inputs, _trials(settings, wanted) as trials:
        for recording in inputs:
            for run in _runs(inputs, recording):
                _own(run, settings, wanted, found)
                found.others += [_other(run, factory, faults) for factory in factories]
                if trials and run.loop is not None:
                    trials.add(run)
        found.tried = trials.results() if trials else []
    _show(found, form, settings, wanted)
    return inputs.code


def _check(picture: str | None) -> None:
    """Says before the work, not after it, that the curve cannot be written."""
    if picture is None:
        return
    path = Path(picture)
    if path.suffix != ".svg" or not path.parent.is_dir() or path.is_dir():
        msg = f"--curve {picture}: expected the name of an .svg file in a folder that exists"
        raise LoopGuardError(msg)


def _trials(settings: Settings, wanted: Wanted) -> Trials | nullcontext[None]:
    if not wanted.leave_one_out and wanted.curve is None:
        return nullcontext()
    lines = LINES if wanted.leave_one_out else 0
    return Trials(settings, lines, wanted.jobs or os.cpu_count() or 1)


def _runs(inputs: Inputs, recording: Recording) -> Iterable[Run]:
    spans = 0
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            yield entry
        else:
            spans += 1
    if spans:
        inputs.note(f"{recording.name}: {spans:,} spans have no labels and are left out")


def _own(run: Run, settings: Settings, wanted: Wanted, found: _Found) -> None:
    account = account_of(run, settings)
    said = ((decision.step, decision.action) for decision in account.decisions)
    judged = judgement(NAME, run, said)
    found.own.append(judged)
    if wanted.cost:
        found.costs += cost.costs(run, judged)
    wrong = mistake(run, account) if wanted.errors else None
    if wrong is not None:
        found.mistakes.append(wrong)


def _other(run: Run, factory: Factory, faults: InternalErrors) -> Judgement:
    baseline = factory()
    return judgement(baseline.name, run, verdicts(baseline, run, faults))


def _show(found: _Found, form: Format, settings: Settings, wanted: Wanted) -> None:
    scores = score_rows([*found.own, *found.others])
    known = [judged for judged in found.own if judged.loop is not None]
    pairs = list(zip(known, found.tried, strict=True)) if found.tried else []
    left = left_out.rows(pairs, wanted.limits, settings.deny_after) if wanted.leave_one_out else ()
    costs = cost.cost_rows(found.costs)
    if form is Format.JSON:
        points = curve.rows(pairs) if wanted.curve else ()
        for row in _all(scores, left, costs, (wrong.row() for wrong in found.mistakes), points):
            json_line(row)
    else:
        show_scores(scores)
        show_left_out(left, wanted.limits)
        show_costs(costs)
        show_mistakes(found.mistakes)
    if wanted.curve:
        Path(wanted.curve).write_text(curve.picture(pairs), encoding="utf-8")


def _all(*parts: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    for part in parts:
        yield from part
