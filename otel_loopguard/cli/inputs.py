"""The files that a command reads: opened, watched, their broken lines reported and counted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from otel_loopguard._util.text import printable
from otel_loopguard.cli.output import say
from otel_loopguard.replay import Recording, recordings
from otel_loopguard.replay.workers import COLLECTED

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_loopguard.replay import Run
    from otel_loopguard.spans.views import RecordedSpan

# Bytes of files that take seconds to replay: with fewer, a bar would only flash.
_BYTES_WORTH_A_BAR: Final = 4 * 1024 * 1024
# Entries between two updates of the bar, which cost as much as a few entries.
_ENTRIES_BETWEEN: Final = 64
# Reports of broken lines that are printed: the first tell what is wrong with a file.
_REPORTS_SHOWN: Final = 10


def bar_of(done: ProgressColumn) -> Progress:
    """A bar on standard error, which is gone when all is done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done)
    to = Console(stderr=True)
    return Progress(*columns, TimeRemainingColumn(), console=to, transient=True)


class Inputs:
    """The recordings that a command was given.

    ::

        with Inputs(files) as inputs:
            for recording in inputs:
                for entry in inputs.entries(recording):
                    ...
        raise typer.Exit(inputs.code)

    Attributes:
        broken: How many reports of broken lines there were; the first ten are printed.
    """

    def __init__(self, files: Sequence[str], bar: bool = True) -> None:
        self.broken = 0
        self._progress: Progress | None = None
        self._recordings = [one for file in files for one in recordings(file, self.report)]
        total = sum(recording.size or 0 for recording in self._recordings)
        if bar and total > _BYTES_WORTH_A_BAR and sys.stderr.isatty():
            self._progress = bar_of(TaskProgressColumn())

    def __enter__(self) -> Self:
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTED)
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._thresholds)
        if self._progress:
            self._progress.stop()
        if self.broken > _REPORTS_SHOWN:
            typer.echo(
                f"otel-loopguard: {self.broken - _REPORTS_SHOWN:,} more such lines are not shown",
                err=True,
            )

    def __iter__(self) -> Iterator[Recording]:
        return iter(self._recordings)

    @property
    def code(self) -> int:
        """The exit code that the input asks for: 1 if something was broken, else 0."""
        return 1 if self.broken else 0

    def entries(self, recording: Recording) -> Iterator[RecordedSpan | Run]:
        """What a recording holds, with the bar moving."""
        if self._progress is None:
            yield from recording
            return
        task = self._progress.add_task(printable(recording.name), total=recording.size)
        for count, entry in enumerate(recording):
            if count % _ENTRIES_BETWEEN == 0:
                self._progress.update(task, completed=recording.done)
            yield entry
        self._progress.update(task, completed=recording.size)

    def note(self, text: str) -> None:
        """Prints a note on standard error, above the bar if there is one."""
        if self._progress:
            self._progress.console.print(
                printable(text), markup=False, highlight=False, soft_wrap=True
            )
        else:
            say(text, error=True)

    def report(self, file: str, number: int, why: str) -> None:
        """Counts a broken line, and prints the first ten."""
        self.broken += 1
        if self.broken <= _REPORTS_SHOWN:
            self.note(f"{file}:{number}: {why}")
