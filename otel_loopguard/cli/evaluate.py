"""`eval`: how often the guard is right about labelled runs, and how soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import sqrt
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import (
    Format,
    cell,
    console,
    json_line,
    keep_faults,
    line,
    say,
    table,
)
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action, Kind
from otel_loopguard.replay import Run
from otel_loopguard.replay.workers import spread

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.core import Step
    from otel_loopguard.settings import Settings

ALL: Final = "all"
"""Stands for every tier, or every source."""

LEVELS: Final = ("noticed", "stopped")
"""What is scored: a hint or stronger; a deny, pause or abort."""

_Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one detector on one labelled run; the fields are those of `Run`."""

    detector: str
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


def print_evaluation(
    files: Sequence[str], form: Format, settings: Settings, *, errors: bool, jobs: int
) -> int:
    """Evaluates labelled runs and prints one object or row per slice; returns the exit code.

    Spans have no labels; files of them are named on standard error and left out.
    """
    judgements: list[Judgement] = []
    mistakes: list[Mistake] = []
    with Inputs(files) as inputs:
        work = partial(_judged, settings=settings)
        for judged, wrong in spread(work, labelled_runs(inputs), jobs, keep_faults, steps_of):
            judgements.append(judged)
            if errors and wrong is not None:
                mistakes.append(wrong)
    scores = list(score_rows(judgements))
    if form is Format.JSON:
        for row in (*scores, *(wrong.row for wrong in mistakes)):
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
            inputs.note(f"{recording.name}: {spans:,} spans have no labels and are left out")


def steps_of(run: Run) -> int:
    """How many steps a run has."""
    return len(run.steps)


def _judged(run: Run, settings: Settings) -> tuple[Judgement, Mistake | None]:
    result = result_of(run, settings)
    return own_judgement(run, result), mistake(run, result)


def own_judgement(run: Run, result: ReplayResult) -> Judgement:
    """The judgement of the guard."""
    return judgement("otel-loopguard", run, ((one.step, one.action) for one in result.decisions))


def judgement(detector: str, run: Run, verdicts: Iterable[tuple[int, Action]]) -> Judgement:
    """The judgement that a detector's verdicts make."""
    noticed = stopped = None
    for step, action in verdicts:
        if noticed is None and action.rank >= Action.HINT.rank:
            noticed = step
        if action.stops:
            stopped = step
            break
    return Judgement(
        detector, run.tier, run.source, run.loop, len(run.steps), run.onset_step, noticed, stopped,
        run.group,
    )  # fmt: skip


# The 97.5 % point of the normal distribution: 2.5 % are left out at each end of a 95 % interval.
_Z: Final = 1.959964
_TAIL: Final = 0.025
# Draws for an interval: the bounds of shares move by about a percent between seeds.
_DRAWS: Final = 1000


def wilson(hits: float, of: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, square = hits / of, _Z * _Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = _Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(found: Iterable[tuple[str, bool]]) -> tuple[float, float] | None:
    """The 95 % interval of a share among runs of which some are related.

    Runs that stand alone give Wilson's interval. Where several runs share a group (agents at one
    task), whole groups are drawn 1,000 times with replacement, from a fixed seed; where all runs or
    none are hits, so that drawing shows no spread, it is Wilson's with the groups as its number.
    """
    single: list[tuple[int, int]] = []
    groups: dict[str, tuple[int, int]] = {}
    for group, hit in found:
        if group:
            hits, of = groups.get(group, (0, 0))
            groups[group] = (hits + hit, of + 1)
        else:
            single.append((int(hit), 1))
    counts = Counter([*single, *groups.values()])
    return _of_groups(tuple(sorted(counts.items()))) if counts else None


@lru_cache(maxsize=1024)  # slices of one source and tier have the same counts
def _of_groups(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[float, float]:
    hits = sum(one[0] * times for one, times in counts)
    runs = sum(one[1] * times for one, times in counts)
    groups = sum(times for _, times in counts)
    if groups == runs or hits in (0, runs):
        return wilson(hits / runs * groups, groups)
    dice = Random(groups)  # noqa: S311  # the same figures in every run
    kinds, weights = [one for one, _ in counts], [times for _, times in counts]
    shares: list[float] = []
    for _ in range(_DRAWS):
        drawn = Counter(dice.choices(kinds, weights, k=groups))
        found = sum(one[0] * times for one, times in drawn.items())
        shares.append(found / sum(one[1] * times for one, times in drawn.items()))
    shares.sort()
    low = round(_TAIL * (_DRAWS - 1))
    return shares[low], shares[-1 - low]


def score(detector: str, tier: str, source: str, about: Sequence[Judgement]) -> dict[str, object]:
    """One row of figures.

    Runs without a label count in `n`, `unlabelled` and `unlabelled_*` only. `…_recall` is a share
    of the stuck runs, `…_false` of the healthy ones, each with `…_low` and `…_high`, its 95 %
    interval. `false_stops_per_1000` is false positives at "stopped" in 1,000 steps of healthy runs.
    The medians are over true positives with an onset; below 0 is before it. What cannot be said
    (nothing to divide by) is None.
    """
    looping = [judged for judged in about if judged.loop is True]
    healthy = [judged for judged in about if judged.loop is False]
    unlabelled = [judged for judged in about if judged.loop is None]
    steps = sum(judged.steps for judged in healthy)
    false_stops = _count(healthy, "stopped")
    return {
        "table": "scores",
        "detector": detector,
        "tier": tier,
        "source": source,
        "n": len(about),
        "loops": len(looping),
        "healthy": len(healthy),
        "unlabelled": len(unlabelled),
        **_rates("noticed", looping, healthy),
        **_rates("stopped", looping, healthy),
        "unlabelled_noticed": _count(unlabelled, "noticed"),
        "unlabelled_stopped": _count(unlabelled, "stopped"),
        "healthy_steps": steps,
        "false_stops_per_1000": 1000 * false_stops / steps if steps else None,
    }


def score_rows(judgements: Sequence[Judgement]) -> Iterator[dict[str, object]]:
    """The figures of every detector: in all, per tier, per source, per tier and source."""
    detectors = list(dict.fromkeys(judged.detector for judged in judgements))
    pairs = sorted({(judged.tier, judged.source) for judged in judgements})
    tiers, sources = sorted({tier for tier, _ in pairs}), sorted({source for _, source in pairs})
    slices = [
        (ALL, ALL),
        *((tier, ALL) for tier in tiers),
        *((ALL, source) for source in sources),
        *pairs,
    ]
    for tier, source in slices:
        for detector in detectors:
            about = [
                judged
                for judged in judgements
                if judged.detector == detector
                and tier in (ALL, judged.tier)
                and source in (ALL, judged.source)
            ]
            yield score(detector, tier, source, about)


def _rates(
    level: str, looping: Sequence[Judgement], healthy: Sequence[Judgement]
) -> dict[str, object]:
    found, wrong = _count(looping, level), _count(healthy, level)
    delays = [
        at - judged.onset
        for judged in looping
        if judged.onset is not None and (at := judged.at(level)) is not None
    ]
    return {
        f"{level}_tp": found,
        f"{level}_fp": wrong,
        f"{level}_precision": found / (found + wrong) if found + wrong else None,
        **_share(f"{level}_recall", looping, level),
        **_share(f"{level}_false", healthy, level),
        f"{level}_median_steps": median(delays) if delays else None,
    }


def _share(name: str, about: Sequence[Judgement], level: str) -> dict[str, object]:
    bounds = interval((judged.group, judged.at(level) is not None) for judged in about)
    low, high = bounds or (None, None)
    share = _count(about, level) / len(about) if about else None
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _count(about: Sequence[Judgement], level: str) -> int:
    return sum(judged.at(level) is not None for judged in about)


_RATES: Final = ("tier, source", "runs#", "noticed#", "95 %", "stopped#", "95 %")
_TABLES: Final = (
    ("healthy", "healthy", "fp", "false", {"stops per 1,000 steps#": "false_stops_per_1000"}),
    (
        *("stuck", "loops", "tp", "recall"),
        {"steps to notice#": "noticed_median_steps", "to stop#": "stopped_median_steps"},
    ),
)
"""What a table is of, the fields with its runs, and the headings and fields of its last columns."""


def show_scores(rows: Sequence[_Row]) -> None:
    """Prints a sentence about all runs of one detector, then stuck and healthy ones by tier."""
    whole = rows[0]
    told = [
        f"{whole[f'stopped_{kind}']} of {whole[runs]} {title} runs would have been stopped, "
        f"{whole[f'noticed_{kind}']} noticed"
        for title, runs, kind, *_ in _TABLES
        if whole[runs]
    ]
    told += [f"{whole['unlabelled']} have no label"] if whole["unlabelled"] else []
    console().print(cell(f"{'; '.join(told)}."))
    for title, runs, kind, share, last in _TABLES:
        cells = [
            [
                place,
                row[runs],
                *(each for level in LEVELS for each in _figures(row, level, kind, share)),
                *(row[name] for name in last.values()),
            ]
            for place, row in _listed(rows, runs)
        ]
        if cells:
            show_table(f"{title} runs", (*_RATES, *last), cells)


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


def _figures(row: _Row, level: str, kind: str, share: str) -> tuple[object, object]:
    """How many runs were hit, and the interval of their share."""
    low, high = row[f"{level}_{share}_low"], row[f"{level}_{share}_high"]
    known = isinstance(low, float) and isinstance(high, float)
    return row[f"{level}_{kind}"], f"{low:.2f}-{high:.2f}" if known else None


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table below a blank line and its title."""
    typer.echo("")
    say(title)
    console().print(table(columns, rows))


# Steps that are shown around a mistake: enough to see the same thing three times. More of them
# lie where the loop is: after the onset of one that was missed, before a false alarm.
_STEPS_OF_LOOP: Final = 5
_STEPS_BESIDE: Final = 2
# Characters of arguments, and of an answer: a call is a line of a wide terminal.
_CALL_CHARS: Final = 72


class Mistake(NamedTuple):
    """A run whose label the guard contradicts: as one JSON object, and as lines for people."""

    row: dict[str, object]
    lines: list[str]


def mistake(run: Run, result: ReplayResult) -> Mistake | None:
    """The mistake about a run; None if there is none, or the run has no label."""
    heard = (one for one in result.decisions if one.action.rank >= Action.HINT.rank)
    first = next(heard, None)
    if run.loop is None or run.loop is (first is not None):
        return None
    kind, at = ("missed", run.onset_step) if first is None else ("false alarm", first.step)
    at = len(run.steps) - 1 if at is None else at
    before, after = (_STEPS_BESIDE, _STEPS_OF_LOOP) if run.loop else (_STEPS_OF_LOOP, _STEPS_BESIDE)
    around = [
        (">" if index == at else " ", index, _short(run.steps[index]))
        for index in range(max(0, at - before), min(len(run.steps), at + after + 1))
    ]
    row: dict[str, object] = {
        "table": "errors",
        "kind": kind,
        "id": run.id,
        "tier": run.tier,
        "source": run.source,
        "steps": len(run.steps),
        "onset": run.onset_step,
        **{name: getattr(first, name, None) for name in ("step", "detector", "reason", "message")},
        "strongest": result.strongest.value,
        "around": [f"{mark} {index:4} {text}" for mark, index, text in around],
    }
    # For people steps count from 1.
    onset = "" if run.onset_step is None else f", onset at step {run.onset_step + 1}"
    lines = [f"{kind}  {line(run.id, 400)}  ({line(run.tier)}, {len(run.steps)} steps{onset})"]
    if first is not None:
        by = f"{first.detector}/{first.reason}; strongest {result.strongest}"
        lines.append(f"  {first.action} at step {first.step + 1} by {by}")
        lines.append(f"  {line(first.message, 200)}")
    lines += [f"    {mark} {index + 1:4} {text}" for mark, index, text in around]
    return Mistake(row, lines)


def _short(step: Step) -> str:
    named = line(step.name, 32)
    if step.kind is Kind.TOOL:
        sign = "!" if step.error else "->"
        answer = step.error_text if step.error and step.error_text is not None else step.outcome
        return f"{named}({_content(step.args)}) {sign} {_content(answer)}"
    return f"{step.kind} {named}: {_content(step.text if step.text is not None else step.args)}"


def _content(value: object) -> str:
    return "?" if value is None else line(value, _CALL_CHARS)


def show_mistakes(mistakes: Sequence[Mistake]) -> None:
    """Prints what was missed and what was wrongly noticed, by kind and tier."""
    for wrong in sorted(mistakes, key=lambda one: (str(one.row["kind"]), str(one.row["tier"]))):
        typer.echo("")
        for text in wrong.lines:
            console().print(cell(text))
