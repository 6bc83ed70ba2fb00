"""`transcripts`: finds the sessions of coding agents, replays them, and prints an overview."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import (
    Format,
    console,
    counted,
    json_line,
    keep_faults,
    say,
    table,
    word,
)
from otel_loopguard.cli.transcript_results import (
    Moment,
    Overview,
    TranscriptResult,
    judged,
    when,
)
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay.opencode_database import is_session
from otel_loopguard.replay.transcripts.folders import (
    SessionFiles,
    holds_sessions,
    newest,
    session_files,
    sessions_in,
    usual_folders,
)
from otel_loopguard.replay.workers import spread
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.settings import Settings

# Decisions of a session that the page lists: more say the same again.
_DECISIONS_SHOWN: Final = 20
_COLUMNS: Final = (
    *("session", "when", "agent", "project", "calls#", "the guard~", "calls after it#"),
    *("minutes#", "tokens#", "USD#", "turn"),
)


def print_transcripts(  # noqa: PLR0913  # the options of the command
    paths: Sequence[str],
    form: Format,
    settings: Settings,
    *,
    last: int,
    days: float,
    html: Path | None,
    jobs: int,
) -> int:
    """Judges sessions and prints an object per session, or an overview; returns the exit code.

    Args:
        paths: Files and folders; without any, where agents keep their transcripts.
        form: How sessions are printed.
        settings: Of the guard.
        last: How many of the sessions that changed last; 0: all.
        days: In how many days they changed; 0: however long ago.
        html: Where the overview is also written as a page.
        jobs: Worker processes; 0: one per processor.
    """
    since = time.time() - days * 86_400 if days else 0.0
    files = newest([files for files in _found(paths) if files.modified >= since], last)
    sessions: list[TranscriptResult] = []
    work = partial(judged, settings=settings)
    with Inputs(()) as inputs:
        for results, broken in spread(work, files, jobs, keep_faults, _steps_of):
            for report in broken:
                inputs.report(*report)
            sessions += results
            for result in results if form is Format.JSON else ():
                json_line(result.row())
    overview = Overview(sessions)
    if form is Format.TABLE and not sessions:
        places = paths or [str(folder) for _, folder in usual_folders()]
        lately = f" of the last {days:g} days" if days else ""
        say(f"no sessions{lately} in {', '.join(places)}")
    elif form is Format.TABLE:
        _show(overview, Counter(result.agent for result in sessions))
    if html is not None:
        write_page(overview, html)
        say(f"otel-loopguard: wrote {html}", error=True)
    return inputs.code


def _found(paths: Sequence[str]) -> Iterator[SessionFiles]:
    """The sessions at these paths, or where agents keep them."""
    if not paths:
        for _, folder in usual_folders():
            yield from sessions_in(folder)
    for path in paths:
        place = Path(path)
        if not (place.exists() or is_session(place)):
            msg = f"{path}: there is no such file or folder"
            raise RecordingError(msg)
        yield from sessions_in(place) if holds_sessions(place) else [session_files(place)]


def _steps_of(files: SessionFiles) -> int:
    """About how many steps a session has: four kilobytes of a transcript are one."""
    try:
        return files.path.stat().st_size // 4_000 + 20
    except OSError:
        return 20


def _show(overview: Overview, agents: Counter[str]) -> None:
    out = console()
    names = ", ".join(f"{agent} {count}" for agent, count in agents.most_common())
    sessions = counted(overview.count, "session")
    say(f"{sessions} ({names}), {overview.quiet:,} of them without a decision")
    for title, _, results in overview.groups():
        if not results:
            continue
        out.print()
        out.print(table(_COLUMNS, [_cells(*each) for each in results], f"{title}: {len(results)}"))
    if overview.after.calls:
        say("")
        say(f"After the stops came {overview.after.spelled()}.")


def _cells(result: TranscriptResult, moment: Moment) -> tuple[str, ...]:
    """What is shown of a session that the guard has something to say about."""
    does = "stops" if result.stop else "hints"
    after = moment.after
    return (
        result.session,
        when(result.start),
        result.agent,
        Path(result.cwd).name,
        f"{result.whole.calls:,}",
        f"{does} at call {moment.call}: {moment.decision.reason}",
        f"{after.calls:,}",
        f"{after.minutes:,.0f}",
        f"{after.tokens:,}",
        after.price(),
        "finished" if moment.finished else "",
    )


def write_page(overview: Overview, path: Path) -> None:
    """Writes the overview as a page that loads nothing and shows no content."""
    template = (resources("otel_loopguard.cli") / "data" / "transcripts.html").read_text("utf-8")
    page = Template(template).substitute(
        circles=f"{overview.count - overview.quiet:,}",
        sessions=f"{overview.count:,}",
        saved=escape(overview.after.spelled()),
        groups="\n".join(_groups(overview)),
        version=__version__,
    )
    with open(path, "w", encoding="utf-8", errors="backslashreplace", opener=_no_link) as stream:
        stream.write(page)


def _no_link(path: str, flags: int) -> int:
    """Opens a file, but none through a link that others have put there."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _groups(overview: Overview) -> Iterator[str]:
    for title, note, results in overview.groups():
        if results:
            yield f"<h2>{title}: {len(results):,}</h2><p class=quiet>{note}</p>"
            yield from (_session(*each) for each in results)


def _session(result: TranscriptResult, moment: Moment) -> str:
    kind = "stop" if result.stop else "hint"
    calls = max(result.whole.calls, 1)
    before, after = 100 * moment.call / calls, 100 * moment.after.calls / calls
    project = Path(result.cwd).name or "no folder known"
    return (
        f"<details class={kind}><summary><span><b>{escape(project)}</b> "
        f"<small>{escape(result.agent)}, {when(result.start)}</small></span>"
        f"<span><span class=word>{kind}</span> at call {moment.call:,} of "
        f"{result.whole.calls:,}: {escape(moment.decision.reason)}</span>"
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
        f"<li><b>{word(one.action)}</b> {escape(one.message)}</li>"
        for one in decisions[:_DECISIONS_SHOWN]
    ]
    if len(decisions) > _DECISIONS_SHOWN:
        items.append(f"<li>and {len(decisions) - _DECISIONS_SHOWN:,} more</li>")
    return "".join(items)
