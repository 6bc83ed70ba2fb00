"""The page that sums a backtest up: one file, with pictures, that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.backtest.rows import load
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.backtest.run import Backtest

# Bars in a picture, rules in a table: what fits on a screen.
_TOP: Final = 15
_LISTED: Final = 200
"""Sessions in a list; a page of more is slow to open, and the Parquet files have all."""
# Decisions of a session in its fold; those after a stop say it again.
_DECISIONS: Final = 20
_STOPS: Final = "('deny', 'pause', 'abort')"
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
table{display:block;overflow-x:auto}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .8rem .2rem 0;
text-align:left;border-bottom:1px solid #dde2e8;vertical-align:top}
code{font-size:.9em;overflow-wrap:anywhere}
details{border-bottom:1px solid #dde2e8;padding:.4rem 0}summary{cursor:pointer}
td.n,th.n{text-align:right}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
meter{width:20rem}small{color:#5b6675}
@media(prefers-color-scheme:dark){body{background:#14181d;color:#e6e9ed}
td,th,details{border-color:#333b45}small{color:#9aa4b1}}
"""

Row = Mapping[str, Any]


def write_summary(found: Backtest, other: Backtest | None, path: Path) -> int:
    """Writes the page; with another backtest of the same source, also in what they differ.

    Returns:
        How many sessions would have been stopped.
    """
    with load("duckdb").connect() as connection:

        def rows(query: str, *files: str) -> list[Row]:
            done = connection.execute(query, list(files or (found.parts,)))
            names = [column[0] for column in done.description]
            return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

        (stopped,) = rows("SELECT count(stop_step) AS sessions FROM read_parquet($1)")
        parts = [*_head(found, rows), *_loops(rows), *_savings(rows), *_labels(rows)]
        parts += _stopped(rows, stopped["sessions"])
        if other is not None:
            parts += _difference(found, other, rows)
    body = "\n".join(parts)
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Backtest</title>'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>\n{body}</html>'
    )
    temporary = path.with_suffix(".tmp")
    temporary.write_text(page, "utf-8", errors="backslashreplace")
    temporary.replace(path)
    return stopped["sessions"]


_Query = Callable[..., list[Row]]


def _head(found: Backtest, rows: _Query) -> list[str]:
    counted = rows(
        "SELECT strongest, count(*) AS sessions, sum(steps)::BIGINT AS steps FROM read_parquet($1)"
        " GROUP BY strongest ORDER BY sessions DESC"
    )
    sessions, steps = _total(counted, "sessions"), _total(counted, "steps")
    html = [
        "<h1>What the guard would have decided</h1>",
        f"<p>{sessions:,} sessions, {steps:,} steps of <b>{_text(found.source.name)}</b></p>",
        f"<p>Guard {__version__}, settings {found.digest}; every session by itself.</p>",
        "<h2>Sessions by their strongest decision</h2>",
        _table(
            ("strongest", "sessions|"),
            [(_action(row["strongest"]), row["sessions"]) for row in counted],
        ),
    ]
    broken = found.notes.broken.most_common(_TOP)
    if broken:
        html += ["<h2>Rows that were passed over</h2>", _table(("reason", "rows#"), broken)]
    return html


def _loops(rows: _Query) -> list[str]:
    """Which loops there are, and where."""
    each = (
        "WITH found AS (SELECT session, source, steps, unnest(decisions) AS decision FROM"
        " read_parquet($1)) "
    )
    loops = rows(
        each + "SELECT decision.detector AS detector, decision.rule AS rule,"
        " count(DISTINCT (session, source)) AS sessions, count(*) AS decisions,"
        f" count(*) FILTER (decision.action IN {_STOPS}) AS stops,"
        " median(decision.step) + 1 AS step"
        f" FROM found GROUP BY ALL ORDER BY sessions DESC, rule LIMIT {_TOP}"
    )
    html = ["<h2>Which loops</h2>"]
    if not loops:
        return [*html, "<p>None: nothing was decided.</p>"]
    columns = ("detector", "rule", "sessions|", "decisions#", "of them stops#", "median step#")
    html.append(_table(columns, [tuple(row.values()) for row in loops]))
    for title, name in (("tool", "coalesce(decision.tool, '(no tool)')"), ("source", "source")):
        where = rows(
            each + f"SELECT {name} AS place, count(DISTINCT (session, source)) AS sessions FROM"
            f" found GROUP BY ALL ORDER BY sessions DESC, place LIMIT {_TOP}"
        )
        html += [
            f"<h2>Where: by {title}, sessions with a decision</h2>",
            _table((title, "sessions|"), [tuple(row.values()) for row in where]),
        ]
    return html


def _savings(rows: _Query) -> list[str]:
    """What stopped sessions used, and how much of it after their first stop."""
    (row,) = rows(
        "SELECT count(*) AS sessions, "
        + ", ".join(
            f"sum({name}) AS {name}, sum({name}_after) AS {name}_after,"
            f" count({name}) AS {name}_known"
            for name in ("calls", "tokens", "seconds", "cost")
        )
        + " FROM read_parquet($1) WHERE stop_step IS NOT NULL"
    )
    html = ["<h2>What a stop would have saved</h2>"]
    if not row["sessions"]:
        return [*html, "<p>Nothing: no session would have been stopped.</p>"]
    units = (("calls", "tool calls"), ("tokens", "tokens"), ("seconds", "seconds"), ("cost", "USD"))
    lines = [
        (unit, row[name], after := row[f"{name}_after"], round(100 * after / row[name]),
         row[f"{name}_known"])
        for name, unit in units if row[name]
    ]  # fmt: skip
    unknown = [unit for name, unit in units if not row[f"{name}_known"]]
    html += [
        f"<p>{row['sessions']:,} sessions would have been stopped.</p>",
        "<p>Used after the first deny, pause or abort, of all that these sessions used:</p>",
        _table(
            ("of stopped sessions", "used#", "after the stop#", "share, %|", "known of#"), lines
        ),
        "<p><small>At most: an agent that is denied a call may go on another way.</small></p>",
    ]
    if unknown:
        html.append(f"<p>The source does not say: {', '.join(unknown)}.</p>")
    return html


def _labels(rows: _Query) -> list[str]:
    """How many labelled sessions are noticed and stopped, rightly and wrongly."""
    counted = rows(
        "SELECT loop, count(*) AS sessions, count(*) FILTER (strongest <> 'allow') AS noticed,"
        " count(stop_step) AS stopped FROM read_parquet($1) GROUP BY loop ORDER BY loop"
    )
    labelled = {row["loop"]: row for row in counted}
    html = ["<h2>At which false-stop rate</h2>"]
    if False not in labelled:
        return [
            *html,
            "<p>Not known: no session of the source is labelled as healthy.</p>",
            "<p>A column <code>loop</code> (true or false) labels sessions.</p>",
        ]
    lines = [
        (name, row["sessions"], row["noticed"], row["stopped"],
         f"{row['stopped'] / row['sessions']:.2%}")
        for value, name in ((False, "healthy"), (True, "stuck"), (None, "not labelled"))
        if (row := labelled.get(value))
    ]  # fmt: skip
    return [
        *html,
        f"<p>{lines[0][4]} of the healthy sessions would have been stopped.</p>",
        _table(("label", "sessions#", "noticed#", "stopped#", "stopped#"), lines),
    ]


def _stopped(rows: _Query, count: int) -> list[str]:
    """The sessions that would have been stopped, those that went on for longest first."""
    if not count:
        return []
    listed = rows(
        "SELECT session, source, steps, stop_step, stop_action, stop_rule,"
        # Not the times: duckdb would need pytz for them.
        " [{'action': d.action, 'tool': d.tool, 'step': d.step, 'message': d.message}"
        " for d in decisions] AS decisions FROM read_parquet($1) WHERE stop_step IS NOT NULL"
        f" ORDER BY steps_after DESC, session, source LIMIT {_LISTED}"
    )
    more = f"<p>The first {_LISTED} of {count:,}; the Parquet files have all.</p>"
    return [
        "<h2>Sessions that would have been stopped</h2>",
        more if count > len(listed) else "",
        *map(_session, listed),
    ]


def _session(row: Row) -> str:
    decisions: Sequence[Row] = row["decisions"]
    at, action = row["stop_step"], row["stop_action"]
    stop = next(one for one in decisions if (one["step"], one["action"]) == (at, action))
    said = [
        f"<li><b>{_action(one['action'], 'note')}</b> at step {one['step'] + 1:,}: "
        f"{'' if (one['tool'] or '') in one['message'] else _tool(one)}"
        f"{_text(one['message'], 400)}</li>"
        for one in decisions[:_DECISIONS]
    ]
    if len(decisions) > _DECISIONS:
        said.append(f"<li>and {len(decisions) - _DECISIONS:,} more</li>")
    return (
        f"<details><summary><code>{_text(row['session'], 400)}</code> <small>"
        f"{_text(row['source'])}</small><br><b>{action}</b> at step {at + 1:,} of "
        f"{row['steps']:,}: {_tool(stop)}{_text(row['stop_rule'])}</summary>"
        f"<ul>{''.join(said)}</ul></details>"
    )


def _tool(decision: Row) -> str:
    return f"<code>{_text(decision['tool'])}</code> " if decision["tool"] else ""


def _action(action: str, allows: str = "nothing, or a note") -> str:
    """An action as people read it; the word `allow` would be taken for a verdict."""
    return allows if action == "allow" else action


def _difference(found: Backtest, other: Backtest, rows: _Query) -> list[str]:
    """Which sessions two settings judge differently."""
    kept = "strongest, stop_step, stop_rule, len(decisions) AS decisions"
    query = (
        f"WITH a AS (SELECT session, source, {kept} FROM read_parquet($1)"
        " QUALIFY row_number() OVER (PARTITION BY session, source ORDER BY len(decisions)) = 1),"
        f" b AS (SELECT session, source, {kept} FROM read_parquet($2)"
        " QUALIFY row_number() OVER (PARTITION BY session, source ORDER BY len(decisions)) = 1),"
        " d AS (SELECT session, source, a.strongest AS one, b.strongest AS other,"
        " a.stop_step + 1 AS one_stop, b.stop_step + 1 AS other_stop FROM a FULL JOIN b"
        " USING (session, source) WHERE a.strongest IS DISTINCT FROM b.strongest"
        " OR a.stop_step IS DISTINCT FROM b.stop_step OR a.decisions IS DISTINCT FROM b.decisions)"
    )
    both = (found.parts, other.parts)
    moves = rows(
        query + " SELECT one, other, count(*) AS sessions FROM d GROUP BY ALL"
        " ORDER BY sessions DESC, one, other", *both,
    )  # fmt: skip
    html = [
        "<h2>Two settings compared</h2>",
        f"<p>Settings {found.digest} and {other.digest}.</p>",
        f"<p>{_total(moves, 'sessions'):,} sessions differ.</p>",
    ]
    if not moves:
        return html
    listed = rows(query + f" SELECT * FROM d ORDER BY session, source LIMIT {_LISTED}", *both)
    columns = (f"strongest, {found.digest}", f"strongest, {other.digest}")
    places = (f"stop at step, {found.digest}#", f"stop at step, {other.digest}#")
    return [
        *html,
        _table((*columns, "sessions|"), [tuple(row.values()) for row in moves]),
        f"<h2>The first {len(listed)} of them</h2>",
        _table(("session", "source", *columns, *places), [tuple(row.values()) for row in listed]),
    ]


def _total(rows: Sequence[Row], name: str) -> int:
    return sum(row[name] for row in rows)


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; a column whose name ends in `#` holds numbers, in `|` bars of them."""
    marks = [column[-1:] if column.endswith(("#", "|")) else "" for column in columns]
    kinds = [' class="n"' if mark == "#" else "" for mark in marks]
    most = [
        100 if name.endswith("%|") else max((row[place] for row in rows), default=0) or 1
        if mark == "|" else 0
        for place, (name, mark) in enumerate(zip(columns, marks, strict=True))
    ]  # fmt: skip
    head = "".join(
        f"<th{kind}>{_text(name.removesuffix(mark))}</th>"
        for name, kind, mark in zip(columns, kinds, marks, strict=True)
    )
    lines = [
        "".join(
            f"<td{kind}>{_cell(value, limit)}</td>"
            for value, kind, limit in zip(row, kinds, most, strict=True)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object, most: float) -> str:
    if not isinstance(value, (int, float)):
        return _text(value)
    bar = f'<meter max="{most}" value="{value}"></meter> ' if most else ""
    return bar + _number(value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _text(value: object, size: int = 120) -> str:
    """What others wrote, as text of a page."""
    written = "" if value is None else str(value)
    return escape(written if len(written) <= size else written[: size - 1] + "…")
