"""A calibration: a stop line, what it is made from, and how it is told and written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import typer

from otel_loopguard.cli.output import cell, console, table
from otel_loopguard.errors import LoopGuardError


@dataclass(frozen=True, slots=True)
class Calibration:
    """A stop line, and what it is made from.

    Attributes:
        rate: How often a good run may be stopped, 0 to 1.
        runs: How many good runs it is made from.
        left_out: Runs that are not known to be good.
        noticed: Good runs that had a hint or stronger; the stop line does not change that.
        before: Good runs that are stopped with the settings as they are.
        line: Confirmations after a hint that it takes to stop a run.
        lines: How many good runs are stopped, by each line that was tried.
        settings: The settings that put the line there.
    """

    rate: float
    runs: int
    left_out: int
    noticed: int
    before: int
    line: int
    lines: dict[int, int]
    settings: dict[str, int]

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
    """Prints a calibration for people.

    Args:
        made: The calibration.
        output: The settings file that was written, if one was.
    """
    out = console()
    typer.echo(f"what it would have done in {made.runs:,} good runs")
    grid = table(("", "noticed#", "stopped#"))
    for name, stopped in (("before", made.before), ("after", made.lines[made.line])):
        grid.add_row(name, *(cell(figure) for figure in (made.noticed, stopped)))
    out.print(grid)
    out.print()
    typer.echo("how many are stopped at each stop line that was tried")
    grid = table(("stop line#", "stopped#"))
    for line in sorted(made.lines):
        grid.add_row(cell(line), cell(made.lines[line]))
    out.print(grid)
    out.print()
    if made.left_out:
        typer.echo(f"{made.left_out:,} runs that are not known to be good are left out.")
    typer.echo(
        f"A run like these {made.runs} is stopped with a probability of {made.rate:g} at most, "
        f"if a stop takes {made.line} confirmation{'s' if made.line > 1 else ''} after the hint."
    )
    typer.echo(f"Written to {output}:\n" if output else "Settings:\n")
    typer.echo(_toml(made.settings), nl=False)


def write(path: Path, made: Calibration) -> None:
    """Writes the settings that were changed, as TOML or, for a name ending in `.json`, as JSON.

    Raises:
        LoopGuardError: The file cannot be written.
    """
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
