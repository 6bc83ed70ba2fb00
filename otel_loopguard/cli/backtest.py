"""`backtest`: what the guard would have decided about millions of sessions."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import MofNCompleteColumn

from otel_loopguard.backtest.run import run
from otel_loopguard.backtest.summary import write_summary
from otel_loopguard.cli.inputs import bar_of
from otel_loopguard.cli.output import counted, keep_faults, say

if TYPE_CHECKING:
    from otel_loopguard.backtest.run import Backtest, Notify
    from otel_loopguard.settings import Settings


def print_backtest(source: str, settings: Sequence[Settings], out: Path, **options: Any) -> int:
    """Replays all sessions of a source, writes result and summary; returns the exit code.

    Args:
        source: A file, a folder, a pattern or a table.
        settings: Those to judge by, and perhaps others to compare with.
        out: Folder of the result.
        options: Others of `otel_loopguard.backtest.run.run`.
    """
    made: list[Backtest] = []
    for given in settings:
        with _bar() as notify:
            made.append(run(source, given, out, notify=notify, prepare=keep_faults, **options))
    found, *others = made
    other = others[0] if others else None
    page = out / "summary.html"
    stopped = write_summary(found, other, page)
    for why, count in found.notes.broken.most_common(10):
        say(f"otel-loopguard: {count:,} x {why}", error=True)
    say(f"{counted(found.notes.sessions, 'session')} of {counted(found.notes.rows, 'row')}")
    say(f"{stopped:,} would have been stopped{'; the summary lists them' if stopped else ''}")
    for each in made:
        say(f"decisions: {each.parts}")
    say(f"summary: {page}")
    return 1 if found.notes.broken else 0


@contextmanager
def _bar() -> Generator[Notify | None]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with bar_of(MofNCompleteColumn()) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
