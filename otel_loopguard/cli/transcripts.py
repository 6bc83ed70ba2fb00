"""`transcripts`: finds the sessions of coding agents, replays them, and prints an overview."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

from otel_loopguard.cli.output import Format, console, counted, json_line, keep_faults, say, table
from otel_loopguard.cli.transcript_page import write_page
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

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

# Reports of broken lines that are printed: the first tell what is wrong with a file.
_REPORTS_SHOWN: Final = 10
_COLUMNS: Final = (
    *("session", "when", "agent", "project", "calls#", "the guard~", "calls after it#"),
    *("minutes#", "tokens#", "USD#", "turn"),
)


class Options(NamedTuple):
    """The options of the command."""

    last: int = 50  # 0: all
    days: float = 0.0  # 0: however old
    html: Path | None = None
    jobs: int = 0


def print_transcripts(
    paths: Sequence[str], form: Format, settings: Settings, options: Options
) -> int:
    """Judges sessions and prints an object per session, or an overview; returns the exit code."""
    found = _chosen(_found(paths), options)
    sessions: list[TranscriptResult] = []
    reports = 0
    work = partial(judged, settings=settings)
    for results, broken in spread(work, found, options.jobs, keep_faults, _steps_of):
        for path, line, why in broken:
            reports += 1
            if reports <= _REPORTS_SHOWN:
                say(f"{path}:{line}: {why}", error=True)
        for result in results:
            sessions.append(result)
            if form is Format.JSON:
                json_line(result.row())
    if reports > _REPORTS_SHOWN:
        typer.echo(f"otel-loopguard: {reports - _REPORTS_SHOWN:,} more reports left out", err=True)
    overview = Overview(sessions)
    if form is Format.TABLE and not sessions:
        places = paths or [str(folder) for _, folder in usual_folders()]
        since = f" of the last {options.days:g} days" if options.days else ""
        say(f"no sessions{since} in {', '.join(places)}")
    elif form is Format.TABLE:
        _show(overview, Counter(result.agent for result in sessions))
    if options.html is not None:
        write_page(overview, options.html)
        say(f"otel-loopguard: wrote {options.html}", error=True)
    return 1 if reports else 0


def _found(paths: Sequence[str]) -> Iterator[SessionFiles]:
    """The sessions at these paths, or where agents keep them."""
    if not paths:
        folders = usual_folders()
        if not folders:
            msg = (
                "no coding agent keeps transcripts here: neither ~/.claude, ~/.codex, ~/.gemini "
                "nor ~/.local/share/opencode has any; name a file or a folder"
            )
            raise RecordingError(msg)
        for _, folder in folders:
            yield from sessions_in(folder)
    for path in paths:
        place = Path(path)
        if not (place.exists() or is_session(place)):
            msg = f"{path}: there is no such file or folder"
            raise RecordingError(msg)
        yield from sessions_in(place) if holds_sessions(place) else [session_files(place)]


def _chosen(found: Iterator[SessionFiles], options: Options) -> list[SessionFiles]:
    since = time.time() - options.days * 86_400 if options.days else 0.0
    return newest([files for files in found if files.modified >= since], options.last)


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
        rows = [_cells(each, each.moment) for each in results if each.moment is not None]
        out.print()
        out.print(table(_COLUMNS, rows, f"{title}: {len(results)}"))
    if overview.after.calls:
        say("")
        say(f"After the stops came {overview.after.spelled()}.")


def _cells(result: TranscriptResult, moment: Moment) -> tuple[str, ...]:
    """What is shown of a session that the guard has something to say about."""
    word = "stops" if result.stop else "hints"
    after = moment.after
    return (
        result.session,
        when(result.start),
        result.agent,
        Path(result.cwd).name,
        f"{result.whole.calls:,}",
        f"{word} at call {moment.call}: {moment.decision.reason}",
        f"{after.calls:,}",
        f"{after.minutes:,.0f}",
        f"{after.tokens:,}",
        after.price(),
        "finished" if moment.finished else "",
    )
