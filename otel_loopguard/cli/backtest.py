"""`backtest`: what the guard would have decided about millions of sessions, and a page about it.

The page is one file, with pictures, that loads nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.progress import MofNCompleteColumn

from otel_loopguard.backtest.rows import load
from otel_loopguard.backtest.run import Backtest, Notify, run
from otel_loopguard.backtest.sources import quoted
from otel_loopguard.cli.output import bar_of, counted, keep_faults, say, write_page
from otel_loopguard.replay import REPEATED

if TYPE_CHECKING:
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
    try:
        for given in settings:
            with _bar() as notify:
                made.append(run(source, given, out, notify=notify, prepare=keep_faults, **options))
    except OSError as error:
        error.filename = error.filename or str(out)  # pyarrow names none
        raise
    found, *others = made
    other = others[0] if others else None
    page = out / "summary.html"
    stopped = write_summary(found, other, page)
    broken = found.notes.broken
    if again := broken.pop(REPEATED, 0):
        say(f"otel-loopguard: {again:,} x {REPEATED}", error=True)
    shown = broken.most_common(10)
    for why, count in shown:
        say(f"otel-loopguard: {count:,} x {why}", error=True)
    if left := broken.total() - sum(count for _, count in shown):
        say(f"otel-loopguard: {left:,} more", error=True)
    say(f"{counted(found.notes.sessions, 'session')} of {counted(found.notes.rows, 'row')}")
    say(f"{stopped:,} would have been stopped{'; the summary lists them' if stopped else ''}")
    for each in made:
        say(f"decisions: {each.parts}")
    say(f"summary: {page.resolve()}")
    return 1 if broken else 0


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


_SECTION: Final = re.compile(r"^-- # (.+)\n((?:-- [^#\n].*\n)*)((?:[^-\n].*\n)+)", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]*)`")
_KINDS: Final = {"#": ' class="n"', "|": ' class="bar"'}
# Reasons of broken rows are few; names of tools and sources are from the recording.
_TOP: Final = 15
# Characters of a cell: a sentence of ours is shorter, and a name of a tool may be hostile.
_LONGEST: Final = 1_000


def write_summary(found: Backtest, other: Backtest | None, path: Path) -> int:
    """Writes the page; with another backtest of the same source, also in what they differ.

    Returns:
        How many sessions would have been stopped.
    """
    text = (files("otel_loopguard.cli") / "data" / "backtest.sql").read_text("utf-8")
    views, *_ = text.partition("-- # ")
    parts, others = quoted(found.parts), quoted((other or found).parts)
    with load("duckdb").connect() as connection:
        connection.execute(views.format(parts=parts, others=others))
        ((sessions, steps, stopped),) = connection.execute(
            "SELECT count(*), coalesce(sum(steps), 0)::BIGINT, count(stop_step) FROM results"
        ).fetchall()
        tables = list(_tables(connection, text, compared=other is not None))
    settings = found.digest if other is None else f"{found.digest}, compared with {other.digest}"
    broken = _table(("what was wrong in rows", "rows#"), found.notes.broken.most_common(_TOP))
    write_page(
        "backtest.html", path,
        sessions=f"{sessions:,}", steps=f"{steps:,}", stopped=f"{stopped:,}", settings=settings,
        source=_text(found.source.name), tables=f"{broken}{''.join(tables)}",
    )  # fmt: skip
    return stopped


def _tables(connection: Any, text: str, *, compared: bool) -> Iterator[str]:
    """The tables of `backtest.sql`, each below its title."""
    for title, comment, query in _SECTION.findall(text):
        if compared or "differing" not in query:
            done = connection.execute(query)
            rows = done.fetchall()
            note = comment.replace("-- ", "").strip()
            note = _CODE.sub(r"<code>\1</code>", _text(note))
            yield f"<h2>{title}</h2>\n" + (f"<p>{note}</p>\n" if note else "")
            yield _table([column[0] for column in done.description], rows) or "<p>None.</p>\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table, if it has rows; `backtest.sql` says what the ends of column names mean."""
    if not rows:
        return ""
    most = [
        100 if name.endswith("%|") else max((row[place] or 0 for row in rows), default=0) or 1
        if name.endswith("|") else 0
        for place, name in enumerate(columns)
    ]  # fmt: skip
    kinds = [_KINDS.get(name[-1:], "") for name in columns]
    head = "".join(
        f'<th scope="col"{kind}>{_text(name.rstrip("#|"))}</th>'
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
    # A frame that scrolls, also by the keyboard: the names of others may be long.
    return f'<div tabindex="0"><table><tr>{head}</tr>\n{body}</table></div>\n'


def _cell(value: object, most: float) -> str:
    if not isinstance(value, (int, float)):
        return _text(value)
    bar = f'<meter max="{most}" value="{value}" aria-hidden="true"></meter> ' if most else ""
    short = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return bar + (f"{value:,.0f}" if value >= 10_000 else short)


def _text(value: object) -> str:
    """Escapes foreign text for a page."""
    written = "" if value is None else str(value)
    return escape(written if len(written) <= _LONGEST else written[: _LONGEST - 1] + "…")
