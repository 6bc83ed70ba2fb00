"""The overview of `transcripts` as a page of HTML that loads nothing and shows no content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from otel_loopguard.cli.output import counted, word
from otel_loopguard.cli.transcript_results import when
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.cli.transcript_results import Overview, TranscriptResult
    from otel_loopguard.core import Decision

# Decisions listed of a session: more say the same again.
_DECISIONS_SHOWN: Final = 20


def write_page(overview: Overview, path: Path) -> None:
    """Writes the page, whole or not at all.

    Raises:
        LoopGuardError: It cannot be written there.
    """
    if path.exists() and not path.is_file():
        # To put the page in its place would take a device or a pipe away from all others.
        msg = f"--html {path}: it is no file"
        raise LoopGuardError(msg)
    template = (files("otel_loopguard.cli") / "data" / "transcripts.html").read_text("utf-8")
    page = Template(template).substitute(
        circles=f"{overview.count - overview.quiet:,}",
        sessions=f"{overview.count:,}",
        saved=escape(overview.after.spelled()),
        figures="".join(
            f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>"
            for name, value in _figures(overview)
        ),
        groups="\n".join(_groups(overview)),
        version=__version__,
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


def _figures(overview: Overview) -> tuple[tuple[str, str], ...]:
    saved = overview.after
    return (
        ("sessions", f"{overview.count:,}"),
        ("stopped", f"{len(overview.stopped) + len(overview.finished):,}"),
        ("of these ended by themselves", f"{len(overview.finished):,}"),
        ("hinted only", f"{len(overview.hinted):,}"),
        ("calls after a stop", f"{saved.calls:,}"),
        ("minutes", f"{saved.minutes:,.0f}"),
        ("tokens", f"{saved.tokens:,}"),
        ("US dollars", saved.price()),
    )


def _groups(overview: Overview) -> Iterator[str]:
    for title, note, results in overview.groups():
        if results:
            yield f"<h2>{title}: {len(results):,}</h2><p class=quiet>{note}</p>"
            yield from map(_session, results)


def _session(result: TranscriptResult) -> str:
    moment = result.moment
    if moment is None:
        return ""
    kind = "stop" if result.stop else "hint"
    calls = max(result.whole.calls, 1)
    before, after = 100 * moment.call / calls, 100 * moment.after.calls / calls
    project = Path(result.cwd).name or "no folder known"
    return (
        f"<details class={kind}><summary><span><b>{escape(project)}</b> "
        f"<small>{escape(result.agent)}, {when(result.start)}</small></span>"
        f"<span><span class=word>{kind}</span> at call {moment.call:,} of "
        f"{result.whole.calls:,}: {_tool(moment.decision)}{escape(moment.decision.reason)}</span>"
        f"<span>after it {escape(moment.after.spelled())}</span>"
        f'<span class=bar><i style="width:{before:.1f}%"></i>'
        f'<b style="width:{after:.1f}%"></b></span></summary>'
        f"<p><code>{escape(result.session)}</code> <small>{counted(result.turns, 'turn')}, "
        f"{escape(result.whole.spelled())} in all</small></p>"
        f"<ul>{_decisions(result.decisions)}</ul>"
        f"<p class=quiet><code>{escape(result.path)}</code></p></details>"
    )


def _decisions(decisions: Sequence[Decision]) -> str:
    items = [
        f"<li><b>{word(one.action)}</b> {'' if (one.tool or '') in one.message else _tool(one)}"
        f"{escape(one.message)}</li>"
        for one in decisions[:_DECISIONS_SHOWN]
    ]
    if len(decisions) > _DECISIONS_SHOWN:
        items.append(f"<li>and {len(decisions) - _DECISIONS_SHOWN:,} more</li>")
    return "".join(items)


def _tool(decision: Decision) -> str:
    """The tool that a decision is about; empty for one about none."""
    return f"<code>{escape(decision.tool)}</code> " if decision.tool else ""
