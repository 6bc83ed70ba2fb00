"""`sessions` and `watch`: the sessions of live processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live

from otel_loopguard.cli.output import Format, cell, console, json_line, say, table

if TYPE_CHECKING:
    from rich.table import Table

    from otel_loopguard.desk.client import Lines
    from otel_loopguard.desk.wire import Message

_COLUMNS: Final = (
    *("session", "agent", "at", "steps#", "action", "detector", "tokens#", "age#", "idle#"),
    *("escalation", "process"),
)
_WIDTHS: Final = {"session": 10, "escalation": 16}
_COLOURS: Final = {"abort": "red", "pause": "magenta", "deny": "yellow", "ask": "cyan"}


def print_sessions(lines: Lines, form: Format) -> int:
    """Prints one object or row per session, the one in use last first; gives the exit code."""
    found = _sorted(lines.sessions())
    if form is Format.JSON:
        for row in found:
            json_line(row)
    else:
        console().print(grid(found, time.time_ns()))
        if not found:
            say(f"otel-loopguard: {lines.why_empty()}", error=True)
    return 0


def watch_sessions(lines: Lines, interval_s: float, rounds: int) -> int:
    """Shows the table of sessions again and again; gives the exit code.

    On a terminal in place, in a pipe one below the other.

    Args:
        lines: The ways to the processes.
        interval_s: Seconds between two looks.
        rounds: Looks until it ends; 0: none.
    """
    out, left = console(), rounds or sys.maxsize
    with Live(console=out, auto_refresh=False, transient=False) as live:
        while left:
            found = _sorted(lines.sessions())
            shown = grid(found, time.time_ns())
            why = "" if found else lines.why_empty()
            if out.is_terminal:
                live.update(Group(shown, cell(why, 400)) if why else shown, refresh=True)
            else:
                out.print(shown)
                if why:
                    say(f"otel-loopguard: {why}", error=True)
            left -= 1
            if left and not _slept(interval_s):
                return 0
    return 0


def grid(rows: Sequence[Message], now: int) -> Table:
    """The table of sessions.

    Args:
        rows: What the processes say of them.
        now: Nanoseconds since the epoch.
    """
    shown = table(_COLUMNS)
    shown.collapse_padding = True
    for column in shown.columns:
        # What is to be typed into the next command is wrapped, and never cut.
        column.overflow = "fold"
    for place, name in enumerate(_COLUMNS):
        shown.columns[place].min_width = _WIDTHS.get(name)
    for row in rows:
        action = cell(row.get("action"), 10)
        action.stylize(_COLOURS.get(action.plain, ""))
        shown.add_row(
            cell(row.get("session"), 40),
            cell(row.get("agent"), 20),
            cell(row.get("step"), 24),
            cell(row.get("steps")),
            action,
            cell(row.get("detector"), 20),
            cell(row.get("tokens")),
            cell(_since(row.get("since"), now)),
            cell(_since(row.get("last"), now)),
            cell(row.get("escalation"), 16),
            cell(row.get("process"), 40),
        )
    return shown


def _sorted(rows: list[Message]) -> list[Message]:
    return sorted(rows, key=_last, reverse=True)


def _last(row: Message) -> int:
    last = row.get("last")
    return last if isinstance(last, int) else 0


def _since(then: object, now: int) -> str:
    """How long ago something was, in the largest unit that fits."""
    if not isinstance(then, int):
        return ""
    seconds = max(0, now - then) // 10**9
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _slept(seconds: float) -> bool:
    """Waits; False if somebody pressed Ctrl-C."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True
