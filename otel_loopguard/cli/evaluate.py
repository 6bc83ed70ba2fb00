"""`eval`: the guard, and other detectors beside it, measured on labelled runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.baselines import Factory, load, verdicts
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, json_line, table
from otel_loopguard.cli.replay import account_of
from otel_loopguard.cli.scores import ALL, Judgement, rows
from otel_loopguard.core import Action
from otel_loopguard.faults import Faults
from otel_loopguard.recordings import Recording, Run

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

NAME: Final = "otel-loopguard"
"""Name of the guard among the detectors."""

_LEVEL: Final = ("tp", "fp", "precision", "recall", "median_steps")
_COLUMNS: Final = (
    *("tier", "source", "detector", "n#", "loops#", "healthy#"),
    *("noticed tp#", "fp#", "precision#", "recall#", "steps#"),
    *("stopped tp#", "fp#", "precision#", "recall#", "steps#", "false/1000#"),
)


def print_evaluation(
    files: Sequence[str], form: Format, settings: Settings, baselines: str | None
) -> int:
    """Evaluates labelled runs and prints one object or row per slice and detector.

    Spans have no labels; files of them are named on standard error and left out. Gives the exit
    code.
    """
    factories = load(baselines) if baselines else ()
    judgements: list[Judgement] = []
    faults = Faults()
    with Inputs(files) as inputs:
        for recording in inputs:
            for run in _runs(inputs, recording):
                judgements.append(_own(run, settings))
                judgements.extend(_other(run, factory, faults) for factory in factories)
    if form is Format.JSON:
        for row in rows(judgements):
            json_line(row)
    else:
        _show(rows(judgements), {(judged.tier, judged.source) for judged in judgements})
    return inputs.code


def _runs(inputs: Inputs, recording: Recording) -> Iterable[Run]:
    spans = 0
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            yield entry
        else:
            spans += 1
    if spans:
        inputs.note(f"{recording.name}: {spans:,} spans have no labels and are left out")


def _own(run: Run, settings: Settings) -> Judgement:
    decisions = account_of(run, settings).decisions
    return _judgement(NAME, run, [(decision.step, decision.action) for decision in decisions])


def _other(run: Run, factory: Factory, faults: Faults) -> Judgement:
    baseline = factory()
    return _judgement(baseline.name, run, verdicts(baseline, run, faults))


def _judgement(detector: str, run: Run, verdicts: Iterable[tuple[int, Action]]) -> Judgement:
    noticed = stopped = None
    for step, action in verdicts:
        if noticed is None and action.rank >= Action.HINT.rank:
            noticed = step
        if action.stops:
            stopped = step
            break
    return Judgement(
        detector, run.tier, run.source, run.loop, len(run.steps), run.onset_step, noticed, stopped
    )


def _show(scores: Iterable[dict[str, object]], pairs: set[tuple[str, str]]) -> None:
    """Prints the table; a pair that says the same as its tier alone is left to the JSON."""
    grid = table(_COLUMNS)
    last: tuple[object, object] | None = None
    for row in scores:
        here = (row["tier"], row["source"])
        alone = sum(tier == here[0] for tier, _ in pairs) == 1
        if ALL not in here and alone:
            continue
        if last not in (None, here):
            grid.add_section()
        last = here
        figures = [row["n"], row["loops"], row["healthy"]]
        for level in ("noticed", "stopped"):
            figures += [row[f"{level}_{name}"] for name in _LEVEL]
        figures.append(row["false_stops_per_1000"])
        names = (cell(row["tier"], 24), cell(row["source"], 32), cell(row["detector"], 24))
        grid.add_row(*names, *(cell(figure) for figure in figures))
    console().print(grid)
