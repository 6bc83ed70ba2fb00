"""`eval`: how often the guard is right about labelled runs, and how soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from math import sqrt
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import typer

from otel_loopguard.cli.output import (
    Format,
    Inputs,
    cell,
    console,
    counted,
    json_line,
    keep_faults,
    line,
    table,
)
from otel_loopguard.cli.replay import ReplayResult, Results, result_of
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Run
from otel_loopguard.replay.workers import spread

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

ALL: Final = "all"
"""Stands for every tier, or every source."""

LEVELS: Final = ("noticed", "stopped")
"""Scored outcomes: a hint or stronger; a deny, pause or abort."""

Row = Mapping[str, object]
Interval = Callable[[Sequence["Judgement"], str], "tuple[float, float]"]
"""The 95 % interval of the share of runs that were hit at a level."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Decisions about one labelled run; the other fields are those of `Run`."""

    tier: str
    source: str
    loop: bool | None
    steps: int
    onset: int | None
    noticed: int | None  # index of the step of the first hint or stronger
    stopped: int | None  # index of the step of the first deny, pause or abort
    group: str = ""

    def at(self, level: str) -> int | None:
        """Index of the step of the first decision of a level; see `LEVELS`."""
        return self.noticed if level == "noticed" else self.stopped


def print_evaluation(  # noqa: PLR0913
    files: Sequence[str], form: Format, settings: Settings, *,
    errors: bool, jobs: int, stuck: AbstractSet[str] = frozenset(),
) -> int:  # fmt: skip
    """Evaluates labelled runs and prints one object or row per slice; returns the exit code.

    Spans have no labels: unless some sessions are named as stuck, they are left out.
    """
    with Inputs(files) as inputs:
        work = partial(_judged, settings=settings)
        if stuck:
            named = named_runs(inputs, settings, stuck)
            found = [(judgement(run, result), mistake(run, result)) for run, result in named]
        else:
            found = list(spread(work, labelled_runs(inputs), jobs, keep_faults, steps_of))
    if inputs.found and not inputs.code and all(judged.loop is None for judged, _ in found):
        raise LoopGuardError("there is no labelled run")
    scores = list(score_rows([judged for judged, _ in found]))
    mistakes = [wrong for _, wrong in found if wrong is not None] if errors else []
    if form is Format.JSON:
        for row in (*scores, *mistakes):
            json_line(row)
    else:
        show_scores(scores)
        show_mistakes(mistakes)
    return inputs.code


def labelled_runs(inputs: Inputs) -> Iterator[Run]:
    """The runs of all files; how many spans were left out is said on standard error."""
    for recording in inputs:
        spans = 0
        for entry in inputs.entries(recording):
            if isinstance(entry, Run):
                yield entry
            else:
                spans += 1
        if spans:
            inputs.note(
                f"{recording.name}: {spans:,} spans have no labels and are left out; --stuck "
                "SESSION labels their sessions"
            )


def named_runs(
    inputs: Inputs, settings: Settings, stuck: AbstractSet[str]
) -> Iterator[tuple[Run, ReplayResult]]:
    """All runs and sessions, with their results; one without a label is healthy if not named."""
    met: set[str] = set()
    for recording in inputs:
        replayed = Results(recording.name, settings).replay(inputs.entries(recording))
        for labelled, result in replayed:
            run = labelled or Run(result.session, result.source, "spans")
            met |= stuck & {run.id}
            if run.loop is None:
                run.loop = run.id in stuck
            yield run, result
    refuse_unmet("--stuck", stuck - met)


def refuse_unmet(option: str, unmet: AbstractSet[str]) -> None:
    """Ends a command that was given names which no run has: those runs would count as healthy.

    Raises:
        LoopGuardError: There are such names.
    """
    if unmet:
        raise LoopGuardError(f"{option} {', '.join(sorted(unmet))}: no run has this name")


def steps_of(run: Run) -> int:
    """Number of steps of a run."""
    return len(run.steps)


def _judged(run: Run, settings: Settings) -> tuple[Judgement, Row | None]:
    result = result_of(run, settings)
    return judgement(run, result), mistake(run, result)


def judgement(run: Run, result: ReplayResult) -> Judgement:
    """Decisions about a run."""
    noticed = next((one.step for one in result.decisions if one.action is not Action.ALLOW), None)
    stopped = next((one.step for one in result.decisions if one.action.stops), None)
    return Judgement(
        run.tier, run.source, run.loop, result.steps, run.onset_step, noticed, stopped, run.group
    )


# The 97.5 % point of the normal distribution: 2.5 % are left out at each end of a 95 % interval.
_Z: Final = 1.959964


def wilson(hits: float, of: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, square = hits / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def _of_runs(about: Sequence[Judgement], level: str) -> tuple[float, float]:
    return wilson(_count(about, level), len(about))


def score_rows(
    judgements: Sequence[Judgement], interval: Interval = _of_runs
) -> Iterator[dict[str, object]]:
    """The figures in all, per tier and its sources, per source."""
    pairs = sorted({(judged.tier, judged.source) for judged in judgements})
    slices = [(ALL, ALL)]
    for tier, source in pairs:
        slices += [(tier, ALL), (tier, source)]
    slices += [(ALL, source) for source in sorted({source for _, source in pairs})]
    for tier, source in dict.fromkeys(slices):
        about = [
            judged
            for judged in judgements
            if tier in (ALL, judged.tier) and source in (ALL, judged.source)
        ]
        yield {"table": "scores", "tier": tier, "source": source, **score(about, interval)}


def score(about: Sequence[Judgement], interval: Interval = _of_runs) -> dict[str, object]:
    """The figures of some runs.

    `…_tp` counts stuck runs and `…_fp` healthy ones, `…_recall` and `…_false` are their shares,
    each with `…_low` and `…_high`, its 95 % interval. The medians are over the stuck runs with an
    onset; below 0 is before it. What cannot be said (nothing to divide by) is None.
    """
    looping = [judged for judged in about if judged.loop is True]
    healthy = [judged for judged in about if judged.loop is False]
    row: dict[str, object] = {
        "n": len(about),
        "loops": len(looping),
        "healthy": len(healthy),
        "unlabelled": len(about) - len(looping) - len(healthy),
    }
    for level in LEVELS:
        for runs, kind, share in ((looping, "tp", "recall"), (healthy, "fp", "false")):
            count, name = _count(runs, level), f"{level}_{share}"
            low, high = interval(runs, level) if runs else (None, None)
            row |= {f"{level}_{kind}": count, name: count / len(runs) if runs else None}
            row |= {f"{name}_low": low, f"{name}_high": high}
        delays = [
            at - judged.onset
            for judged in looping
            if judged.onset is not None and (at := judged.at(level)) is not None
        ]
        row[f"{level}_median_steps"] = median(delays) if delays else None
    return row


def _count(about: Sequence[Judgement], level: str) -> int:
    return sum(judged.at(level) is not None for judged in about)


_COLUMNS: Final = (
    *("tier, source", "runs#", "noticed#", "95 %", "stopped#", "95 %"),
    *("steps to notice#", "to stop#"),
)
_KINDS: Final = (("healthy", "healthy", "fp", "false"), ("stuck", "loops", "tp", "recall"))
"""Subject of a table, and the fields with its runs, its hits and their share."""


def show_scores(rows: Sequence[Row]) -> None:
    """Prints a sentence about all runs, then stuck and healthy ones by tier."""
    whole = rows[0]
    told = [
        f"{whole[f'stopped_{kind}']} of {whole[runs]} {title} runs would have been stopped, "
        f"{whole[f'noticed_{kind}']} noticed"
        for title, runs, kind, _ in _KINDS
        if whole[runs]
    ]
    told += [f"{whole['unlabelled']} have no label"] if whole["unlabelled"] else []
    console().print(cell(f"{'; '.join(told) or 'there is no labelled run'}."))
    for title, runs, kind, share in _KINDS:
        cells = [
            (
                row["tier"] if row["source"] == ALL else f"  {row['source']}",
                row[runs],
                *(
                    each
                    for level in LEVELS
                    for each in (row[f"{level}_{kind}"], _bounds(row, f"{level}_{share}"))
                ),
                *(row[f"{level}_median_steps"] for level in LEVELS if kind == "tp"),
            )
            for row in rows
            if row[runs] and (row["tier"] != ALL or row["source"] == ALL)
        ]
        if cells:
            show_table(f"{title} runs", _COLUMNS[: len(cells[0])], cells)


def _bounds(row: Row, share: str) -> str:
    return f"{row[f'{share}_low']:.2f}-{row[f'{share}_high']:.2f}"


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table below a blank line and its title."""
    typer.echo(f"\n{title}")
    console().print(table(columns, rows))


# Steps that are shown around a mistake: enough to see the same thing three times. More of them
# lie where the loop is: after the onset of one that was missed, before a false alarm.
_STEPS_OF_LOOP: Final = 5
_STEPS_BESIDE: Final = 2
# Characters of arguments, and of an answer: a call is a line of a wide terminal.
_CALL_CHARS: Final = 72


def mistake(run: Run, result: ReplayResult) -> Row | None:
    """A run whose label the guard contradicts; None if it does not, or the run has no label.

    `around` has the steps around it by their indices.
    """
    first = next((one for one in result.decisions if one.action is not Action.ALLOW), None)
    if run.loop is None or run.loop is (first is not None):
        return None
    at = run.onset_step if first is None else first.step
    at = len(run.steps) - 1 if at is None else at
    before, after = (_STEPS_BESIDE, _STEPS_OF_LOOP) if run.loop else (_STEPS_OF_LOOP, _STEPS_BESIDE)
    around = range(max(0, at - before), min(len(run.steps), at + after + 1))
    said = ("step", "action", "detector", "reason", "message")
    return {
        "table": "errors",
        "kind": "missed" if first is None else "false alarm",
        "id": run.id,
        "tier": run.tier,
        "source": run.source,
        "steps": result.steps,
        "onset": run.onset_step,
        **{name: getattr(first, name, None) for name in said},
        "strongest": result.strongest.value,
        "around": [(index, _short(run.steps[index])) for index in around],
    }


def _short(step: Step) -> str:
    named = line(step.name, 32)
    if step.kind is Kind.TOOL:
        sign = "!" if step.error else "->"
        answer = step.error_text if step.error and step.error_text is not None else step.outcome
        return f"{named}({_content(step.args)}) {sign} {_content(answer)}"
    return f"{step.kind} {named}: {_content(step.text if step.text is not None else step.args)}"


def _content(value: object) -> str:
    return "?" if value is None else line(value, _CALL_CHARS)


def show_mistakes(mistakes: Sequence[Mapping[str, Any]]) -> None:
    """Prints what was missed and what was wrongly noticed, by kind and tier."""
    out = console()
    for wrong in sorted(mistakes, key=itemgetter("kind", "tier")):
        # For people steps count from 1.
        onset, at = wrong["onset"], wrong["step"]
        known = "" if onset is None else f", onset at step {onset + 1}"
        steps = counted(wrong["steps"], "step")
        run = f"{wrong['id']}  ({wrong['tier']}, {steps}{known})"
        lines = ["", f"{wrong['kind']}  {run}"]
        if at is not None:
            by = f"{wrong['detector']}/{wrong['reason']}; strongest {wrong['strongest']}"
            lines += [f"  {wrong['action']} at step {at + 1} by {by}", f"  {wrong['message']}"]
        lines += [f"    {index + 1:4} {text}" for index, text in wrong["around"]]
        for text in lines:
            out.print(cell(text))
