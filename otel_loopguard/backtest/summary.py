"""The page that sums a backtest up: one file, with pictures, that loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.backtest.rows import load
from otel_loopguard.backtest.sources import quoted
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.backtest.run import Backtest

_SECTION: Final = re.compile(r"^-- # (.+)\n((?:-- [^#\n].*\n)*)((?:[^-\n].*\n)+)", re.MULTILINE)
# Reasons of broken rows are few; names of tools and sources are from the recording.
_TOP: Final = 15
_LONGEST: Final = 1_000
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
table{display:block;overflow-x:auto}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .8rem .2rem 0;
text-align:left;border-bottom:1px solid #dde2e8;vertical-align:top;overflow-wrap:anywhere}
td.n,th.n{text-align:right}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
meter{width:20rem}
@media(prefers-color-scheme:dark){body{background:#14181d;color:#e6e9ed}
td,th{border-color:#333b45}}
"""


def write_summary(found: Backtest, other: Backtest | None, path: Path) -> int:
    """Writes the page; with another backtest of the same source, also in what they differ.

    Returns:
        How many sessions would have been stopped.
    """
    text = files("otel_loopguard.backtest").joinpath("summary.sql").read_text("utf-8")
    views, *_ = text.partition("-- # ")
    parts, others = quoted(found.parts), quoted((other or found).parts)
    with load("duckdb").connect() as connection:
        connection.execute(views.format(parts=parts, others=others))
        ((sessions, steps, stopped),) = connection.execute(
            "SELECT count(*), coalesce(sum(steps), 0)::BIGINT, count(stop_step) FROM results"
        ).fetchall()
        tables = list(_tables(connection, text, compared=other is not None))
    settings = found.digest if other is None else f"{found.digest}, compared with {other.digest}"
    broken = _table(("rows that were passed over", "rows#"), found.notes.broken.most_common(_TOP))
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Backtest</title>'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>\n'
        "<h1>What the guard would have decided</h1>\n"
        f"<p>{sessions:,} sessions, {steps:,} steps of <b>{_text(found.source.name)}</b>; "
        f"{stopped:,} sessions would have been stopped.</p>\n"
        f"<p>Guard {__version__}, settings {settings}; every session by itself. Empty cells are "
        f"unknown: the source does not say.</p>\n{broken}{''.join(tables)}</html>"
    )
    temporary = path.with_suffix(".tmp")
    temporary.write_text(page, "utf-8", errors="backslashreplace")
    temporary.replace(path)
    return stopped


def _tables(connection: Any, text: str, *, compared: bool) -> Iterator[str]:
    """The tables of `summary.sql`, each below its title."""
    for title, comment, query in _SECTION.findall(text):
        if compared or "differing" not in query:
            done = connection.execute(query)
            rows = done.fetchall()
            note = comment.replace("-- ", "").strip()
            yield f"<h2>{title}</h2>\n" + (f"<p>{_text(note)}</p>\n" if note else "")
            yield _table([column[0] for column in done.description], rows) or "<p>None.</p>\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table, if it has rows; `summary.sql` says what the ends of column names mean."""
    if not rows:
        return ""
    most = [
        100 if name.endswith("%|") else max((row[place] or 0 for row in rows), default=0) or 1
        if name.endswith("|") else 0
        for place, name in enumerate(columns)
    ]  # fmt: skip
    kinds = [' class="n"' if name.endswith("#") else "" for name in columns]
    head = "".join(
        f"<th{kind}>{_text(name.rstrip('#|'))}</th>"
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{_cell(value, limit)}</td>"
            for value, kind, limit in zip(row, kinds, most, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


def _cell(value: object, most: float) -> str:
    if not isinstance(value, (int, float)):
        return _text(value)
    bar = f'<meter max="{most}" value="{value}"></meter> ' if most else ""
    short = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return bar + (f"{value:,.0f}" if value >= 10_000 else short)


def _text(value: object) -> str:
    """What others wrote, as text of a page."""
    written = "" if value is None else str(value)
    return escape(written if len(written) <= _LONGEST else written[: _LONGEST - 1] + "…")
