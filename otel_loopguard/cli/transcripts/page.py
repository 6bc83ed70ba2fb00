"""The overview as an HTML page that loads nothing and shows no content of calls."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from otel_loopguard.cli.output import word
from otel_loopguard.cli.transcripts.words import counted, dollars, spelled, when
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_loopguard.cli.transcripts.result import Overview, TranscriptResult
    from otel_loopguard.core import Decision

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--page:#fff;--line:#dde2e8;--quiet:#5b6675;
--card:#f6f7f9;--stop:#c0362c;--hint:#b7791f}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--page:#14181d;--line:#333b45;
--quiet:#9aa4b1;--card:#1b2027;--stop:#f0786d;--hint:#e0a84a}}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;
margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--page)}
h1{font-size:1.5rem;margin:0 0 .5rem}h2{font-size:1.1rem;margin:2.2rem 0 .3rem}
p{margin:.3rem 0 .8rem}small,.quiet{color:var(--quiet)}
dl{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0}
dl div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:.6rem 1rem;min-width:8rem}dt{color:var(--quiet);font-size:.85rem}
dd{margin:0;font-size:1.35rem;font-variant-numeric:tabular-nums}
details{border-bottom:1px solid var(--line);padding:.5rem 0}
summary{cursor:pointer;display:grid;gap:.1rem 1rem;align-items:baseline;
grid-template-columns:minmax(12rem,1.2fr) minmax(12rem,1.4fr) minmax(14rem,1.6fr)}
summary::-webkit-details-marker{display:none}
.bar{display:flex;height:.4rem;border-radius:.2rem;overflow:hidden;background:var(--line);
margin:.35rem 0;grid-column:1/-1}.bar i{background:var(--quiet);opacity:.55}
.bar b{background:var(--hint)}.stop .bar b{background:var(--stop)}
.word{color:var(--hint);font-weight:600}.stop .word{color:var(--stop)}
ul{margin:.5rem 0;padding-left:1.2rem}code{font-size:.9em;overflow-wrap:anywhere}
@media(max-width:40rem){summary{grid-template-columns:1fr}}
"""
_DECISIONS: Final = 20


def write_page(overview: Overview, path: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        LoopGuardError: It cannot be written there.
    """
    if path.exists() and not path.is_file():
        # To put the page in its place would take a device or a pipe away from all others.
        msg = f"--html {path}: it is no file"
        raise LoopGuardError(msg)
    saved = overview.after
    circles = overview.count - overview.quiet
    summary = (
        f"In <b>{circles:,}</b> of {overview.count:,} sessions the agent went in circles. Where "
        f"the guard would have stopped it, {_text(spelled(saved))} came after that, up to the end "
        "of the turn."
    )
    foot = (
        f"otel-loopguard {__version__}. Costs are those of its price table; ≥ where a model has no "
        "price."
    )
    parts = [
        f"<h1>Sessions of your coding agents</h1><p>{summary}</p>",
        _figures(overview),
        *_group(
            "Would have been stopped",
            "The turn did not end by itself: a person interrupted it, or nothing says how it "
            "ended.",
            overview.stopped,
        ),
        *_group(
            "Would have been stopped, and the agent ended its turn by itself",
            "Look at these before you let the guard enforce. That the agent ended its turn does "
            "not say that it had done its task.",
            overview.finished,
        ),
        *_group(
            "Would have got a hint",
            "Nothing is stopped by a hint: the model is told what it repeats.",
            overview.hinted,
        ),
        f"<p class=quiet>{foot}</p>",
    ]
    body = "\n".join(parts)
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sessions of coding agents'
        '</title><meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style>\n<main>{body}</main></html>\n"
    )
    # A name that nobody can put a link at before.
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(page)
        temporary.replace(path)
    except OSError as error:
        msg = f"--html {path}: cannot be written: {error.strerror}"
        raise LoopGuardError(msg) from error
    finally:
        temporary.unlink(missing_ok=True)


def _figures(overview: Overview) -> str:
    saved = overview.after
    figures = (
        ("sessions", f"{overview.count:,}"),
        ("stopped", f"{len(overview.stopped) + len(overview.finished):,}"),
        ("of these ended by themselves", f"{len(overview.finished):,}"),
        ("hinted only", f"{len(overview.hinted):,}"),
        ("calls after a stop", f"{saved.calls:,}"),
        ("minutes", f"{saved.minutes:,.0f}"),
        ("tokens", f"{saved.tokens:,}"),
        ("US dollars", dollars(saved)),
    )
    cards = "".join(f"<div><dt>{name}</dt><dd>{_text(value)}</dd></div>" for name, value in figures)
    return f"<dl>{cards}</dl>"


def _group(title: str, note: str, results: Sequence[TranscriptResult]) -> list[str]:
    if not results:
        return []
    head = f"<h2>{title}: {len(results):,}</h2><p class=quiet>{note}</p>"
    return [head, *(_session(result) for result in results)]


def _session(result: TranscriptResult) -> str:
    moment = result.moment
    if moment is None:
        return ""
    kind = "stop" if result.stop else "hint"
    calls = max(result.whole.calls, 1)
    before, after = 100 * moment.call / calls, 100 * moment.after.calls / calls
    project = Path(result.cwd).name or "no folder known"
    decisions = [
        f"<li><b>{word(one.action)}</b> {'' if (one.tool or '') in one.message else _tool(one)}"
        f"{_text(one.message)}</li>"
        for one in result.decisions
    ]
    if len(decisions) > _DECISIONS:
        decisions[_DECISIONS:] = [f"<li>and {len(decisions) - _DECISIONS:,} more</li>"]
    return (
        f"<details class={kind}><summary><span><b>{_text(project)}</b> "
        f"<small>{_text(result.agent)}, {_text(when(result.start))}</small></span>"
        f"<span><span class=word>{kind}</span> at call {moment.call:,} of "
        f"{result.whole.calls:,}: {_tool(moment.decision)}{_text(moment.decision.reason)}</span>"
        f"<span>after it {_text(spelled(moment.after))}</span>"
        f'<span class=bar><i style="width:{before:.1f}%"></i>'
        f'<b style="width:{after:.1f}%"></b></span></summary>'
        f"<p><code>{_text(result.session)}</code> <small>{counted(result.turns, 'turn')}, "
        f"{_text(spelled(result.whole))} in all</small></p><ul>{''.join(decisions)}</ul>"
        f"<p class=quiet><code>{_text(result.path)}</code></p></details>"
    )


def _tool(decision: Decision) -> str:
    """The tool that a decision is about; empty for one about none."""
    return f"<code>{_text(decision.tool)}</code> " if decision.tool else ""


def _text(value: str) -> str:
    return escape(value)
