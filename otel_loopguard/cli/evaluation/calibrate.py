"""`calibrate`: the stop line from past runs that went well."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from otel_loopguard.cli.evaluation.trials import HIGHEST, at_line, changes
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, json_line, sentence, table
from otel_loopguard.cli.replay import SpanResults, result_of
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import RecordedSession, Recording, Run, Transcript

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.views import RecordedSpan


@dataclass(frozen=True, slots=True)
class Calibration:
    """A stop line, and the runs that it follows from."""

    rate: float  # of good runs that may be stopped, 0 to 1
    runs: int  # good ones
    left_out: int  # not known to be good
    noticed: int  # good runs with a hint or stronger; the stop line does not change that
    before: int  # good runs stopped with the settings as they are
    line: int  # confirmations after a hint that it takes to stop a run
    lines: dict[int, int]  # good runs stopped, by each line that was tried
    settings: dict[str, int]  # that put the line there

    def row(self) -> dict[str, object]:
        """The calibration as one JSON object."""
        return {
            "false_stops": self.rate,
            "runs": self.runs,
            "left_out": self.left_out,
            "before": {"noticed": self.noticed, "stopped": self.before},
            "after": {"noticed": self.noticed, "stopped": self.lines[self.line]},
            "line": self.line,
            "lines": [{"line": line, "stopped": self.lines[line]} for line in sorted(self.lines)],
            "settings": self.settings,
        }


def show(made: Calibration, output: str | None) -> None:
    """Prints a calibration for people."""
    out = console()
    typer.echo(f"what it would have done in {made.runs:,} good runs")
    stopped = (("before", made.before), ("after", made.lines[made.line]))
    rows = [(name, made.noticed, count) for name, count in stopped]
    out.print(table(("", "noticed#", "stopped#"), rows))
    out.print()
    typer.echo("how many are stopped at each stop line that was tried")
    out.print(table(("stop line#", "stopped#"), sorted(made.lines.items())))
    out.print()
    if made.left_out:
        typer.echo(f"{made.left_out:,} runs that are not known to be good are left out.")
    sentence(
        f"A run like these {made.runs} is stopped with a probability of {made.rate:g} at most, "
        f"if a stop takes {made.line} confirmation{'s' if made.line > 1 else ''} after the hint."
    )
    typer.echo(f"Written to {output}:\n" if output else "Settings:\n")
    typer.echo(_toml(made.settings), nl=False)


def write(path: Path, made: Calibration) -> None:
    """Writes the settings that were changed, as TOML or, for a name ending in `.json`, as JSON."""
    if path.suffix == ".json":
        text = json.dumps(made.settings, indent=2) + "\n"
    else:
        text = (
            f"# Set by `otel-loopguard calibrate` from {made.runs} good runs,\n"
            f"# for a rate of false stops of {made.rate:g}.\n{_toml(made.settings)}"
        )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"--output {path}: cannot be written: {error.strerror}"
        raise LoopGuardError(msg) from error


def _toml(settings: dict[str, int]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


_SUFFIXES: Final = (".toml", ".json")

_Place = tuple[int, str]
"""A run: index of its recording, and its number (a labelled run) or session (of spans) in it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command."""

    rate: float  # of good runs that may be stopped, 0 to 1
    bad: AbstractSet[str] = frozenset()  # runs and sessions that did not go well
    output: str | None = None  # a settings file to write


@dataclass(slots=True)
class _Survey:
    """What the guard would have done in the good runs, with the settings as they are."""

    runs: int = 0  # good ones
    other: int = 0  # not known to be good, and left out
    noticed: set[_Place] = field(default_factory=set[_Place])  # no other can be stopped
    stopped: int = 0


def allowed(runs: int, rate: float) -> int:
    """How many of the calibration runs a stop line may stop.

    Split-conformal: with the line at the ceil((n + 1)(1 - rate)) / n quantile of the runs' scores
    (the confirmations that a run reached), a further run of the same kind is stopped with
    probability `rate` at most. So the line is the lowest that stops no more runs than lie above
    that quantile.
    """
    if not 0 < rate <= 1:
        msg = f"--false-stops {rate:g}: no number of runs shows that; expected more than 0, up to 1"
        raise LoopGuardError(msg)
    # As it was written: 0.001 is one in a thousand, and not the float beside it.
    share = Fraction(repr(float(rate)))
    above = runs - ceil((runs + 1) * (1 - share))
    if above < 0:
        raise LoopGuardError(_too_few(runs, rate, ceil(1 / share) - 1))
    return above


def print_calibration(
    files: Sequence[str], form: Format, settings: Settings, options: Options
) -> int:
    """Finds the stop line, says what it would have done, and writes a settings file.

    Good runs are labelled lines that do not loop or whose task succeeded, sessions of coding agents
    whose last turn was not interrupted, and all sessions of files of spans. The files are read once
    for every line that is tried; nothing of them is kept.
    """
    _check(files, settings, options.output)
    with Inputs(files) as inputs:
        _check_sizes(inputs)
        survey = _survey(inputs, settings, options.bad)
    limit = allowed(survey.runs, options.rate)
    tried = _search(list(inputs), settings, survey.noticed, limit)
    lines = {line: len(stopped) for line, stopped in tried.items()}
    line = min(line for line, stopped in lines.items() if stopped <= limit)
    made = Calibration(
        options.rate, survey.runs, survey.other, len(survey.noticed), survey.stopped, line, lines,
        changes(settings, line),
    )  # fmt: skip
    if options.output is not None:
        write(Path(options.output), made)
    if form is Format.JSON:
        json_line(made.row())
    else:
        show(made, options.output)
    return inputs.code


def _check(files: Sequence[str], settings: Settings, output: str | None) -> None:
    if "-" in files:
        msg = "calibrate reads its files more than once, and standard input cannot be: name a file"
        raise LoopGuardError(msg)
    if not Action(settings.max_action).stops:
        msg = f"max_action = {settings.max_action!r}: nothing is ever stopped, so there is no line"
        raise LoopGuardError(msg)
    path = Path(output) if output is not None else None
    if path is not None and (path.exists() or not path.parent.is_dir()):
        msg = f"--output {output}: expected a new file in a folder that exists"
        raise LoopGuardError(msg)
    if path is not None and path.suffix not in _SUFFIXES:
        msg = f"--output {output}: expected a name ending in {' or '.join(_SUFFIXES)}"
        raise LoopGuardError(msg)


def _check_sizes(inputs: Inputs) -> None:
    for recording in inputs:
        if recording.size is None:
            msg = (
                f"{recording.path}: calibrate reads its files more than once, and a pipe cannot be"
            )
            raise LoopGuardError(msg)


def _survey(inputs: Inputs, settings: Settings, bad: AbstractSet[str]) -> _Survey:
    survey = _Survey()
    for index, recording in enumerate(inputs):
        entries = inputs.entries(recording)
        for place, good, result in _results(index, recording.name, entries, settings, None):
            if not good or result.session in bad:
                survey.other += 1
                continue
            survey.runs += 1
            survey.stopped += result.strongest.stops
            if result.strongest.rank >= Action.HINT.rank:
                survey.noticed.add(place)
    return survey


def _search(
    recordings: Sequence[Recording | RecordedSession],
    settings: Settings,
    noticed: set[_Place],
    limit: int,
) -> dict[int, set[_Place]]:
    """The runs that are stopped at each line tried: doubling up, then halving down.

    What one line does not stop, no higher one does, so that only the runs stopped at a lower line
    are looked at again.
    """
    low, line, stopped = 0, 1, noticed
    tried: dict[int, set[_Place]] = {}
    while True:
        tried[line] = _stopped(recordings, at_line(settings, line), stopped)
        if len(tried[line]) <= limit:
            break
        if line == HIGHEST:
            raise LoopGuardError(_no_line(len(tried[line]), limit))
        low, stopped, line = line, tried[line], min(2 * line, HIGHEST)
    while line - low > 1:
        middle = (low + line) // 2
        tried[middle] = _stopped(recordings, at_line(settings, middle), stopped)
        if len(tried[middle]) <= limit:
            line = middle
        else:
            low, stopped = middle, tried[middle]
    return tried


def _stopped(
    recordings: Sequence[Recording | RecordedSession], settings: Settings, only: set[_Place]
) -> set[_Place]:
    """Which of some runs are stopped."""
    found: set[_Place] = set()
    for index, known in enumerate(recordings):
        if not any(place[0] == index for place in only):
            continue
        recording = known.reopened(_ignore)
        for place, _, result in _results(index, recording.name, recording, settings, only):
            if place in only and result.strongest.stops:
                found.add(place)
    return found


def _results(
    index: int,
    name: str,
    entries: Iterable[RecordedSpan | Run],
    settings: Settings,
    only: AbstractSet[_Place] | None,
) -> Iterator[tuple[_Place, bool, ReplayResult]]:
    """Place, whether it is good, and result, for every run; of labelled ones some if `only`."""
    spans = SpanResults(name, settings)
    for number, entry in enumerate(entries):
        if not isinstance(entry, Run):
            for result in spans.add(entry):
                yield (index, result.session), True, result
            continue
        place = (index, str(number))
        if only is None or place in only:
            yield place, _good(entry), result_of(entry, settings)
    for result in spans.finish():
        yield (index, result.session), True, result


def _good(run: Run) -> bool:
    if isinstance(run, Transcript):
        return run.ending != "interrupted"
    return run.loop is False or (run.loop is None and run.success is True)


def _ignore(_file: str, _number: int, _why: str) -> None:
    """Broken lines were reported when the file was read first."""


def _too_few(runs: int, rate: float, need: int) -> str:
    smallest = f"{_rounded_up(Fraction(1, runs + 1))}, one in {runs + 1}" if runs else "none"
    return (
        f"--false-stops {rate:g} needs at least {need:,} good runs, and there are {runs:,}; "
        f"the smallest rate that {runs:,} runs support is {smallest}"
    )


def _rounded_up(share: Fraction) -> str:
    """A share in at most four places behind the zeros, never less than it is."""
    places = 4
    while share * 10**places < 100:
        places += 1
    return f"{ceil(share * 10**places) / 10**places:.{places}f}".rstrip("0")


def _no_line(stopped: int, limit: int) -> str:
    return (
        f"{stopped} of these runs are stopped even after {HIGHEST} confirmations, and at most "
        f"{limit} may be: look at them with `replay`; what did not go well can be left out with "
        "--except, and a verdict that stands on no ladder (a budget, say) has its own setting"
    )
