"""The sheets that `eval` prints for people: a table per tier, and what was asked for beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import typer

from otel_loopguard.cli.output import cell, console, line, table
from otel_loopguard.cli.scores import ALL

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from otel_loopguard.cli.left_out import Limits
    from otel_loopguard.cli.mistakes import Mistake

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
