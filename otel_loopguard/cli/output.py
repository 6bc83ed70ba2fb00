"""Input and output of commands: recordings in; JSON lines, tables and cells out."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import fill
from typing import TYPE_CHECKING, Final, TypeVar, cast

import orjson
import typer
from rich import box
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from otel_loopguard._util.fields import is_map
from otel_loopguard._util.text import printable
from otel_loopguard.replay import MISTIMED, Recording, Run, SpanChecks, recordings
from otel_loopguard.replay.workers import COLLECTED
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_loopguard.spans.views import RecordedSpan

_Found = TypeVar("_Found")


def keep_faults() -> None:
    """Leaves decisions, which are printed, out of standard error; faults stay."""
    logging.getLogger("otel_loopguard").addFilter(is_fault)


def open_streams() -> None:
    """Opens what was closed before the process began (`>&-`), to nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # to the end
            setattr(sys, name, nowhere)


def write_page(template: str, path: Path, **values: str) -> None:
    """Writes a page by a template of ours; it is one file that loads nothing."""
    text = (files("otel_loopguard.cli") / "data" / template).read_text("utf-8")
    page = Template(text).substitute(values, version=__version__)
    # Not through a link that others have put there.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK, 0o666)
    with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:  # noqa: PTH123
        stream.write(page)


def drop_output() -> None:
    """Drops what standard output could not write: at the end Python would try again."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, suppress(OSError, ValueError):
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def is_fault(record: logging.LogRecord) -> bool:
    """True for the record of a fault, or of a variable that is ignored."""
    return hasattr(record, "fault") or getattr(record, "blind", "") == "unknown_variable"


_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_DEPTH: Final = 200  # levels of nested values; the parser of JSON takes no more than 254
_PIPE_WIDTH: Final = 10_000  # columns of a pipe: tables are not wrapped for programs
_SENTENCE: Final = 30
"""Characters of a line below which a sentence in a table is no fun to read."""
_CELL: Final = 400
"""Characters of a cell: no id, name or sentence of ours is longer; what others wrote may be."""
_SPACE: Final = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]")


class Format(str, Enum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"


def json_line(row: Mapping[str, object]) -> None:
    """Prints one object as one line of JSON.

    What JSON cannot express is approximated: NaN as null, bytes as text, a lone surrogate as its
    escape, nesting beyond 200 levels as "…". Characters that a terminal would take for a command,
    or show as another text, are escaped.
    """
    try:
        line = orjson.dumps(row)
    except TypeError:
        line = json.dumps(_plain(row, 0)).encode()
    text = line.decode()
    if printable(text) != text:
        line = json.dumps(orjson.loads(line), separators=(",", ":")).encode()
    typer.echo(line)


def give(
    found: Iterable[_Found],
    form: Format,
    row: Callable[[_Found], Mapping[str, object]],
    show: Callable[[list[_Found]], object],
) -> None:
    """Prints what was found: each as one JSON object, as it comes, or all of it for people."""
    if form is Format.TABLE:
        show(list(found))
        return
    for each in found:
        json_line(row(each))


def say(text: str, *, error: bool = False) -> None:
    """Prints one line, with anything unprintable in it escaped."""
    typer.echo(printable(text), err=error)


def sentence(text: str) -> None:
    """Prints a line; a terminal that is too narrow gets it wrapped between words, and indented."""
    text = printable(text)
    if sys.stdout.isatty():
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        text = fill(
            text, console().width, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    typer.echo(text)


def console() -> Console:
    """The console of tables and trees: standard output, not wrapped where that is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> RenderableType:
    """A table; where the terminal is too narrow for it, each row as a block of names and values.

    Nothing is cut: headings wrap between words, and the first cell of a block, which often is an id
    that the next command needs, has a line of its own.

    Args:
        columns: Headings; one that ends in `#` is of numbers, in `~` of sentences, which may wrap.
        rows: Cells: text with a style, or any value.
    """
    out = console()
    names = [cell(column.rstrip("#~")) for column in columns]
    cells = [[one if isinstance(one, Text) else cell(one) for one in row] for row in rows]
    widths = _widths(columns, names, cells, out.width - 2 * (len(columns) - 1))
    if widths is None:
        return Group(*(block for row in cells for block in _block(names, row)))
    grid = Table(
        show_edge=False, pad_edge=False, collapse_padding=out.is_terminal,
        box=box.SIMPLE_HEAD if out.is_terminal else None,
    )  # fmt: skip
    for column, name, width in zip(columns, names, widths, strict=True):
        grid.add_column(name, justify="right" if column.endswith("#") else "left", width=width)
    for row in cells:
        grid.add_row(*row)
    return grid


def _widths(
    columns: Sequence[str], names: Sequence[Text], rows: Sequence[Sequence[Text]], room: int
) -> list[int] | None:
    """The width of each column: the whole heading, or else its longest word; None: no room."""
    values = [max((row[place].cell_len for row in rows), default=0) for place in range(len(names))]
    widths = [max(name.cell_len, value) for name, value in zip(names, values, strict=True)]
    if sum(widths) > room:
        words = [max(map(len, name.plain.split()), default=0) for name in names]
        widths = [max(word, value) for word, value in zip(words, values, strict=True)]
        for place, column in enumerate(columns):
            if column.endswith("~"):
                left = room - sum(widths) + widths[place]
                widths[place] = max(min(widths[place], _SENTENCE), min(widths[place], left))
    return widths if sum(widths) <= room else None


def _block(names: Sequence[Text], row: Sequence[Text]) -> Iterator[RenderableType]:
    """A row below its first cell: what it has, each value behind its name."""
    pairs = [
        Text.assemble((f"{name} ", "dim"), value)
        for name, value in zip(names[1:], row[1:], strict=True)
        if value
    ]
    yield Text.assemble(row[0], style="bold", overflow="fold")
    yield Padding(Columns(pairs, padding=(0, 2)), (0, 0, 0, 2))


def cell(value: object, size: int = _CELL) -> Text:
    """A value as one line of at most `size` characters that no terminal takes for a command."""
    return Text(line(value, size))


def word(action: str) -> str:
    """Display name of a decision: one that only allows is a note."""
    return "note" if action == "allow" else str(action)


def counted(count: int, name: str) -> str:
    """A number of things: `1 call`, `2 calls`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def line(value: object, size: int = 60) -> str:
    """A value as one line of at most `size` printable characters; None is empty."""
    if value is None:
        return ""
    if isinstance(value, float):
        written = f"{value:.3g}"
    elif isinstance(value, str):
        written = value
    else:
        written = json.dumps(_plain(value, 0), ensure_ascii=False)
    # Spaces stay as they are: people copy ids.
    flat = printable(_SPACE.sub(" ", written[: size + 1]))
    return flat if len(flat) <= size else flat[: size - 1] + "…"


def _plain(value: object, depth: int) -> object:
    """The value, with what JSON cannot express replaced; see `json_line`."""
    if depth > _DEPTH:
        return "…"
    if is_map(value):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in cast("list[object]", value)]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if isinstance(value, (str, int, type(None))) else str(value)


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
        found: Whether anything was read.
    """

    def __init__(self, files: Sequence[str], bar: bool = True) -> None:
        self.broken = 0
        self.found = False
        self._mistimed = False
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

    def __exit__(self, failed: object, *_: object) -> None:
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
        if self._recordings and not (failed or self.found or self.broken):
            say("otel-loopguard: there is no span and no run to read", error=True)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self._recordings)

    @property
    def code(self) -> int:
        """The exit code that the input asks for: 1 if something was broken, else 0."""
        return 1 if self.broken or self._mistimed else 0

    def entries(self, recording: Recording) -> Iterator[RecordedSpan | Run]:
        """Yields a recording's items, each span once, and advances the bar."""
        told = Counter[str]()
        checks = SpanChecks(told)
        task = self._progress.add_task(printable(recording.name), total=recording.size)
        for count, entry in enumerate(recording):
            if count % _ENTRIES_BETWEEN == 0:
                self._progress.update(task, completed=recording.done)
            self.found = True
            if isinstance(entry, Run) or checks.takes(entry):
                yield entry
        self._progress.update(task, completed=recording.size)
        for why, count in told.items():
            self.note(f"{recording.name}: {count:,} x {why}")
        self._mistimed |= MISTIMED in told

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
