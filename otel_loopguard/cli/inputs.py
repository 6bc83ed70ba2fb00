"""The files that a command reads: opened, watched, their broken lines reported and counted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

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
from otel_loopguard.replay import Recording, Run, recordings
from otel_loopguard.replay.workers import COLLECTED

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_loopguard.spans.views import RecordedSpan

# Bytes of files that take seconds to replay: with fewer, a bar would only flash.
_BYTES_WORTH_A_BAR: Final = 4 * 1024 * 1024
# Entries between two updates of the bar, which cost as much as a few entries.
_ENTRIES_BETWEEN: Final = 64
# Faults that are printed, each once for a file: the first tell what is wrong with it.
_FAULTS_SHOWN: Final = 10


def bar_of(done: ProgressColumn) -> Progress:
    """A bar on standard error, which is gone when all is done."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done)
    to = Console(stderr=True, emoji=False)  # `:100:` is the number of a line
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
        broken: How many broken lines there were.
    """

    def __init__(self, files: Sequence[str], bar: bool = True) -> None:
        self.broken = 0
        self._found = False
        # Of each fault of a file the line that had it first, and how many more have it.
        self._faults: dict[tuple[str, str], tuple[int, int]] = {}
        self._progress = bar_of(TaskProgressColumn())
        self._recordings = [one for file in files for one in recordings(file, self.report)]
        total = sum(recording.size or 0 for recording in self._recordings)
        shown = bar and total > _BYTES_WORTH_A_BAR and sys.stderr.isatty()
        self._progress.disable = not shown

    def __enter__(self) -> Self:
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTED)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._thresholds)
        if self._progress.live.is_started:
            self._progress.stop()
        left = self.broken
        for (file, _why), (number, more) in self._faults.items():
            left -= 1 + more
            if more:
                say(f"otel-loopguard: {file}: {_lines(more)} like line {number}", error=True)
        if left:
            say(f"otel-loopguard: {_lines(left)} with other faults", error=True)
        if self._recordings and not (self._found or self.broken):
            say("otel-loopguard: there is no span and no run to read", error=True)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self._recordings)

    @property
    def code(self) -> int:
        """The exit code that the input asks for: 1 if something was broken, else 0."""
        return 1 if self.broken else 0

    def entries(self, recording: Recording) -> Iterator[RecordedSpan | Run]:
        """Yields a recording's items and advances the bar."""
        task = self._progress.add_task(printable(recording.name), total=recording.size)
        for count, entry in enumerate(recording):
            if count % _ENTRIES_BETWEEN == 0:
                self._progress.update(task, completed=recording.done)
            self._found = True
            yield entry
        self._progress.update(task, completed=recording.size)

    def note(self, text: str) -> None:
        """Prints a note on standard error, above the bar if there is one."""
        shown = printable(text)
        self._progress.console.print(shown, markup=False, highlight=False, soft_wrap=True)

    def report(self, file: str, number: int, why: str) -> None:
        """Counts a broken line; prints the first ten faults, each once for a file."""
        self.broken += 1
        known = self._faults.get((file, why))
        if known is not None:
            self._faults[file, why] = known[0], known[1] + 1
        elif len(self._faults) < _FAULTS_SHOWN:
            self._faults[file, why] = number, 0
            self.note(f"{file}:{number}: {why}")


def _lines(more: int) -> str:
    return f"{more:,} more {'line' if more == 1 else 'lines'}"
