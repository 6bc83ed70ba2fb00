"""`backtest`: what the guard would have decided about millions of sessions."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from otel_loopguard.backtest.run import run
from otel_loopguard.backtest.summary import write_summary
from otel_loopguard.cli.output import keep_faults, say

if TYPE_CHECKING:
    from otel_loopguard.backtest.run import Backtest, Notify
    from otel_loopguard.settings import Settings


class Options(NamedTuple):
    """The options of the command."""

    out: Path
    where: str
    engine: str
    jobs: int
    memory: str


def print_backtest(
    source: str, settings: Settings, compared: Settings | None, options: Options
) -> int:
    """Replays all sessions of a source, writes result and summary; returns the exit code."""
    out, where, engine, jobs, memory = options

    def replayed(given: Settings) -> Backtest:
        with _bar() as notify:
            return run(
                source, given, out,
                where=where, engine=engine, jobs=jobs, memory=memory,
                notify=notify, prepare=keep_faults,
            )  # fmt: skip

    found = replayed(settings)
    other = None if compared is None else replayed(compared)
    page = out / "summary.html"
    stopped = write_summary(found, other, page)
    for why, count in found.notes.broken.most_common(10):
        say(f"otel-loopguard: {count:,} x {why}", error=True)
    say(f"{found.notes.sessions:,} sessions of {found.notes.rows:,} rows")
    say(f"{stopped:,} of them would have been stopped; the summary lists them")
    for each in filter(None, (found, other)):
        say(f"decisions: {each.parts}")
    say(f"summary: {page}")
    return 1 if found.notes.broken else 0


@contextmanager
def _bar() -> Generator[Notify | None]:
    """A bar on standard error, where that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    to = Console(stderr=True)
    bar = Progress(*columns, TimeRemainingColumn(), console=to, transient=True)
    if not sys.stderr.isatty():
        yield None
        return
    with bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
