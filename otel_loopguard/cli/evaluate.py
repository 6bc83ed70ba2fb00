"""`eval`: the guard, and other detectors beside it, measured on labelled runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli import cost, curve, left_out, sheets
from otel_loopguard.cli.baselines import Factory, load, verdicts
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.left_out import Limits
from otel_loopguard.cli.mistakes import Mistake, mistake
from otel_loopguard.cli.output import Format, json_line
from otel_loopguard.cli.replay import account_of
from otel_loopguard.cli.scores import Judgement, judgement, rows
from otel_loopguard.cli.trials import LINES, Trials, Tried
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.faults import Faults
from otel_loopguard.recordings import Recording, Run

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

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

    Raises:
        LoopGuardError: The curve cannot be written, or baselines cannot be used.
    """
    _check(wanted.curve)
    factories = load(wanted.baselines) if wanted.baselines else ()
    found = _Found()
    faults = Faults()
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


def _other(run: Run, factory: Factory, faults: Faults) -> Judgement:
    baseline = factory()
    return judgement(baseline.name, run, verdicts(baseline, run, faults))


def _show(found: _Found, form: Format, settings: Settings, wanted: Wanted) -> None:
    scores = rows([*found.own, *found.others])
    known = [judged for judged in found.own if judged.loop is not None]
    pairs = list(zip(known, found.tried, strict=True)) if found.tried else []
    left = left_out.rows(pairs, wanted.limits, settings.deny_after) if wanted.leave_one_out else ()
    costs = cost.rows(found.costs)
    if form is Format.JSON:
        points = curve.rows(pairs) if wanted.curve else ()
        for row in _all(scores, left, costs, (wrong.row() for wrong in found.mistakes), points):
            json_line(row)
    else:
        sheets.show_scores(scores)
        sheets.show_left_out(left, wanted.limits)
        sheets.show_costs(costs)
        sheets.show_mistakes(found.mistakes)
    if wanted.curve:
        Path(wanted.curve).write_text(curve.picture(pairs), encoding="utf-8")


def _all(*parts: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    for part in parts:
        yield from part
