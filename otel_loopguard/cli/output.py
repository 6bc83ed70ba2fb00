"""What the command line prints: JSON lines, tables, cells."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import orjson
import typer

from otel_loopguard._util.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def keep_faults() -> None:
    """Leaves decisions, which are printed, out of standard error; faults stay."""
    logging.getLogger("otel_loopguard").addFilter(_has_exception)


def open_streams() -> None:
    """Opens what was closed before the process began (`>&-`), to nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # to the end
            setattr(sys, name, nowhere)


def drop_output() -> None:
    """Drops what standard output could not write: at the end Python would try again."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, suppress(OSError, ValueError):
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _has_exception(record: logging.LogRecord) -> bool:
    return record.exc_info is not None


_DEPTH: Final = 200
_PIPE_WIDTH: Final = 10_000
_SPACE: Final = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]")


class Format(str, Enum):
    """How results are printed."""

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


def say(text: str, *, error: bool = False) -> None:
    """Prints one line, with anything unprintable in it escaped."""
    typer.echo(printable(text), err=error)


def console() -> Console:
    """Where tables and trees go: standard output, without wrapping if that is no terminal."""
    from rich.console import Console  # noqa: PLC0415  # slow to import

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def table(columns: Sequence[str], title: str | None = None) -> Table:
    """A table with these columns; one whose name ends in `#` holds numbers."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    lines = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    name = None if title is None else cell(title, 400)
    grid = Table(title=name, box=lines, title_justify="left", pad_edge=False)
    for column in columns:
        right = column.endswith("#")
        grid.add_column(cell(column.removesuffix("#")), justify="right" if right else "left")
    return grid


def cell(value: object, size: int = 60) -> Text:
    """A value as one line of at most `size` characters that no terminal takes for a command."""
    from rich.text import Text  # noqa: PLC0415

    return Text(line(value, size))


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
    flat = printable(_SPACE.sub(" ", written[: size + 1]))
    return flat if len(flat) <= size else flat[: size - 1] + "…"


def _plain(value: object, depth: int) -> object:
    """The value, with what JSON cannot express replaced; see `json_line`."""
    if depth > _DEPTH:
        return "…"
    if isinstance(value, dict):
        known = cast("dict[object, object]", value)
        return {str(key): _plain(inner, depth + 1) for key, inner in known.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in cast("list[object]", value)]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if isinstance(value, (str, int, type(None))) else str(value)
