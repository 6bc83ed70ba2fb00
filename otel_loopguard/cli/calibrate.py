"""`calibrate`: the stop line from past runs that went well."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, json_line, sentence, table
from otel_loopguard.cli.replay import SpanResults, result_of
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Recording, Run, Transcript
from otel_loopguard.replay.file import untold

if TYPE_CHECKING:
    from otel_loopguard.cli.replay import ReplayResult
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.views import RecordedSpan

HIGHEST: Final = 100
"""The highest line that the settings take (`deny_after`, `abort_after`)."""
_SUFFIXES: Final = (".toml", ".json")


def print_calibration(  # noqa: PLR0913  # the options of the command
    files: Sequence[str],
    form: Format,
    settings: Settings,
    *,
    rate: float,
    bad: AbstractSet[str],
    output: str | None,
) -> int:
    """Finds the stop line, says what it would have done, and writes a settings file.

    Good runs are labelled lines that do not loop or whose task succeeded, sessions of coding agents
    whose last turn was not interrupted, and all sessions of files of spans. The files are read once
    for every line that is tried; nothing of them is kept.

    Args:
        files: The runs.
        form: How the result is printed.
        settings: Those whose stop line is moved.
        rate: Of good runs that may be stopped, 0 to 1.
        bad: Runs and sessions that did not go well.
        output: A settings file to write.
    """
    _check(files, settings, output)
    runs = left_out = before = 0
    noticed: set[_Place] = set()  # no other good run can be stopped
    with Inputs(files) as inputs:
        for recording in inputs:
            if recording.size is None:
                msg = f"{recording.path}: {_READ_AGAIN} a pipe cannot be"
                raise LoopGuardError(msg)
        for index, recording in enumerate(inputs):
            entries = inputs.entries(recording)
            for place, good, result in _results(index, recording.name, entries, settings, None):
                if not good or result.session in bad:
                    left_out += 1
                    continue
                runs += 1
                before += result.strongest.stops
                if result.strongest.rank >= Action.HINT.rank:
                    noticed.add(place)
    limit = allowed(runs, rate)
    lines = _search(list(inputs), settings, noticed, limit)
    line = min(line for line, stopped in lines.items() if stopped <= limit)
    made = Calibration(
        rate, runs, left_out, len(noticed), before, line, lines, changes(settings, line)
    )
    if output is not None:
        made.write(Path(output))
    if form is Format.JSON:
        json_line(made.row())
    else:
        made.show(output)
    return inputs.code


_READ_AGAIN: Final = "calibrate reads its files more than once, and"


def _check(files: Sequence[str], settings: Settings, output: str | None) -> None:
    if "-" in files:
        msg = f"{_READ_AGAIN} standard input cannot be: name a file"
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


def changes(settings: Settings, line: int) -> dict[str, int]:
    """The settings that put the stop line somewhere.

    Deny and pause stand on the line, abort as far above it as it stands above deny now.
    """
    apart = max(0, settings.abort_after - settings.deny_after)
    return {
        "deny_after": line,
        "pause_after": line,
        "abort_after": min(line + apart, HIGHEST),
    }


def at_line(settings: Settings, line: int) -> Settings:
    """The settings with the stop line somewhere else."""
    return settings.model_copy(update=changes(settings, line))


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

    def show(self, output: str | None) -> None:
        """Prints the calibration for people."""
        out = console()
        typer.echo(f"what it would have done in {self.runs:,} good runs")
        stopped = (("before", self.before), ("after", self.lines[self.line]))
        rows = [(name, self.noticed, count) for name, count in stopped]
        out.print(table(("", "noticed#", "stopped#"), rows))
        out.print()
        typer.echo("how many are stopped at each stop line that was tried")
        out.print(table(("stop line#", "stopped#"), sorted(self.lines.items())))
        out.print()
        if self.left_out:
            typer.echo(f"{self.left_out:,} runs that are not known to be good are left out.")
        sentence(
            f"A run like these {self.runs} is stopped with a probability of {self.rate:g} at most, "
            f"if a stop takes {self.line} confirmation{'s' if self.line > 1 else ''} after the "
            "hint."
        )
        typer.echo(f"Written to {output}:\n" if output else "Settings:\n")
        typer.echo(self._toml(), nl=False)

    def write(self, path: Path) -> None:
        """Writes the settings, as TOML or, for a name ending in `.json`, as JSON."""
        if path.suffix == ".json":
            text = json.dumps(self.settings, indent=2) + "\n"
        else:
            text = (
                f"# Set by `otel-loopguard calibrate` from {self.runs} good runs,\n"
                f"# for a rate of false stops of {self.rate:g}.\n{self._toml()}"
            )
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            msg = f"--output {path}: cannot be written: {error.strerror}"
            raise LoopGuardError(msg) from error

    def _toml(self) -> str:
        return "".join(f"{name} = {value}\n" for name, value in self.settings.items())


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


_Place = tuple[int, str]
"""A run: index of its recording, and its number (a labelled run) or session (of spans) in it."""


def _search(
    recordings: Sequence[Recording],
    settings: Settings,
    noticed: set[_Place],
    limit: int,
) -> dict[int, int]:
    """How many runs are stopped at each line tried: doubling up, then halving down.

    What one line does not stop, no higher one does, so that only the runs stopped at a lower line
    are looked at again.
    """
    tried: dict[int, int] = {}
    low, high, looked_at = 0, HIGHEST + 1, noticed
    while high - low > 1:
        line = (low + high) // 2 if high in tried else min(2 * low or 1, HIGHEST)
        stopped = _stopped(recordings, at_line(settings, line), looked_at)
        tried[line] = len(stopped)
        if len(stopped) <= limit:
            high = line
        else:
            low, looked_at = line, stopped
    if high not in tried:
        raise LoopGuardError(_no_line(tried[HIGHEST], limit))
    return tried


def _stopped(recordings: Sequence[Recording], settings: Settings, only: set[_Place]) -> set[_Place]:
    """Which of some runs are stopped."""
    found: set[_Place] = set()
    for index, known in enumerate(recordings):
        if not any(place[0] == index for place in only):
            continue
        recording = known.reopened(untold)  # told when it was read first
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
