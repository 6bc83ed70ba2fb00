"""`doctor`: prints what was found, what is missing and the line that adds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from otel_loopguard.cli.doctor import environment, recording
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, json_line, line

if TYPE_CHECKING:
    from otel_loopguard.cli.doctor.finding import Finding

_MARKS: Final = {"ok": ("✓", "green"), "missing": ("✗", "bold red"), "note": ("·", "dim")}


def print_findings(files: Sequence[str], form: Format) -> int:
    """Prints an object or a few lines per finding; returns the exit code, 1 if one is missing."""
    broken = 0
    if files:
        with Inputs(files) as inputs:
            found = [each for one in inputs for each in recording.examine(inputs, one)]
        broken = inputs.code
    else:
        found = list(environment.examine())
    if form is Format.JSON:
        for finding in found:
            json_line(finding._asdict())
    else:
        _show(found)
    return 1 if broken or any(finding.state == "missing" for finding in found) else 0


def _show(found: Iterable[Finding]) -> None:
    out = console()
    missing, about = 0, ""
    for finding in found:
        missing += finding.state == "missing"
        mark, style = _MARKS[finding.state]
        if finding.about != about:
            about = finding.about
            out.print(cell(about), style="bold")
        _print(Text(f"  {mark}", style=style), cell(finding.found))
        if finding.add:
            verb = "use" if finding.state == "ok" else "add"
            _print(Text("   "), Text.assemble(f"{verb}: ", (line(finding.add, 1000), "cyan")))
    out.print()
    out.print(f"{missing} missing" if missing else "nothing is missing")


def _print(begin: Text, text: Text) -> None:
    """Prints text whose further lines begin where its first one does."""
    row = Table.grid(padding=(0, 1))
    row.add_row(begin, text)
    console().print(row)
