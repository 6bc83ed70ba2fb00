"""`transcripts`: finds the sessions of coding agents, replays them, and prints an overview.

For each session that was hinted at or stopped it says what the agent still took afterwards.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.cli.output import (
    Format,
    Inputs,
    console,
    counted,
    json_line,
    keep_faults,
    say,
    table,
    word,
    write_page,
)
from otel_loopguard.cli.replay import DECISION, result_of
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.core.report import decision_row
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay import Recording, Transcript
from otel_loopguard.replay.recording import reported
from otel_loopguard.replay.transcripts.folders import (
    SessionFiles,
    holds_sessions,
    newest,
    session_files,
    sessions_in,
    usual_folders,
)
from otel_loopguard.replay.transcripts.opencode import is_session
from otel_loopguard.replay.workers import spread
from otel_loopguard.settings.prices import cost_of

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_NS_IN_MINUTE: Final = 60_000_000_000  # what a minute is


class Amount(NamedTuple):
    """Cost of a part of a session."""

    calls: int = 0
    minutes: float = 0.0  # from its first step to its last, without waits for a person
    tokens: int = 0
    dollars: float = 0.0  # of the answers whose model has a price
    unpriced: int = 0  # answers with tokens whose model has none

    def price(self) -> str:
        """Dollars, at least; `?` where no model has a price."""
        if self.unpriced and not self.dollars:
            return "?"
        return f"{'≥ ' if self.unpriced else ''}{self.dollars:,.2f}"

    def spelled(self) -> str:
        """The amount in words."""
        price = f"${self.price()}".replace("$≥ ", "at least $")
        parts = (
            counted(self.calls, "call"),
            counted(round(self.minutes), "minute"),
            counted(self.tokens, "token"),
            "at a price that is not known" if price == "$?" else price,
        )
        return ", ".join(parts)


def total(amounts: Iterable[Amount]) -> Amount:
    """Total cost of several parts."""
    columns = zip(*amounts, strict=True)
    return Amount(*map(sum, columns))


def when(start: int) -> str:
    """A time of day here; empty where it is not known."""
    if not start:
        return ""
    return datetime.fromtimestamp(start / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")


class Moment(NamedTuple):
    """The first hint or stop of a turn, and what the agent did from there to the turn's end."""

    call: int  # its number, from 1
    reason: str
    message: str
    after: Amount
    finished: bool  # the agent ended this turn by itself

    def row(self) -> dict[str, object]:
        """It as one JSON object."""
        return {**self._asdict(), "after": self.after._asdict()}


@dataclass(slots=True)
class TranscriptResult:
    """One session."""

    agent: str
    session: str
    path: str
    cwd: str
    version: str
    start: int  # nanoseconds since the epoch; 0 where that is not known
    turns: int
    whole: Amount
    hint: Moment | None  # the first of all, with what came after those of all turns
    stop: Moment | None
    decisions: list[Decision]

    def row(self) -> dict[str, object]:
        """The result as one JSON object."""
        return {
            **{name: getattr(self, name) for name in _OWN},
            "start": self.start / 1_000_000_000 if self.start else None,
            "whole": self.whole._asdict(),
            "hint": self.hint and self.hint.row(),
            "stop": self.stop and self.stop.row(),
            "decisions": [decision_row(decision, *DECISION) for decision in self.decisions],
        }


_OWN: Final = ("agent", "session", "path", "cwd", "version", "turns")


class Overview:
    """Sessions in groups, in each the one that took most afterwards first.

    Attributes:
        count: How many there are.
        quiet: How many without a decision.
        after: What came after all stops.
        groups: Heading, note and sessions of each group that has any.
    """

    def __init__(self, sessions: Sequence[TranscriptResult]) -> None:
        told = [(one, moment) for one in sessions if (moment := one.stop or one.hint) is not None]
        told.sort(key=lambda each: (each[1].after.calls, each[1].after.tokens), reverse=True)
        stopped = [each for each in told if each[0].stop]
        self.count = len(sessions)
        self.quiet = self.count - len(told)
        self.after = total(moment.after for _, moment in stopped)
        found = (
            [each for each in stopped if not each[1].finished],
            [each for each in stopped if each[1].finished],
            [each for each in told if not each[0].stop],
        )
        self.groups = [(*said, each) for said, each in zip(_GROUPS, found, strict=True) if each]


_GROUPS: Final = (
    ("Would have been stopped", "A person interrupted the turn, or nothing says how it ended."),
    (
        "Would have been stopped, and the agent ended its turn by itself",
        "Whether it had done its task is not known: look before you let the guard enforce.",
    ),
    ("Would have got a hint", "A hint stops nothing: it tells the model what it repeats."),
)


Reports = list[tuple[str, int, str]]
"""File, line and reason of what was passed over."""


def judged(files: SessionFiles, settings: Settings) -> tuple[list[TranscriptResult], Reports]:
    """Reads and replays one session."""
    found: list[TranscriptResult] = []
    broken: Reports = []
    path = str(files.path)

    def report(file: str, line: int, why: str) -> None:
        broken.append((file, line, why))

    with reported(path, report):
        for run in Recording(path, report, files.sub_agents):
            if not isinstance(run, Transcript):
                report(path, 1, "no transcript of a coding agent: `replay` and `report` read it")
                break
            found.append(transcript_result(run, path, settings))
    return found, broken


def transcript_result(run: Transcript, path: str, settings: Settings) -> TranscriptResult:
    """Replays a session, and counts what it took after its hints and stops."""
    decisions, prices = result_of(run, settings).decisions, settings.prices_file
    start = next((step.start for step in run.steps if step.start), 0)
    place = Path(path)
    # gemini-cli does not say where it works, but names a folder after it.
    cwd = run.cwd or (place.parts[-3] if place.parts[-2:-1] == ("chats",) else "")
    # Of the call that each step is, or comes behind.
    numbers = list(accumulate(int(step.kind is Kind.TOOL) for step in run.steps))
    parts: list[Amount] = []
    hints: list[Moment] = []
    stops: list[Moment] = []
    for turn, (first, last) in enumerate(_turns(run.steps)):
        parts.append(_amount(run.steps[first:last], prices))
        finished = run.endings[turn : turn + 1] == ("finished",)
        made = [decision for decision in decisions if first <= decision.step < last]
        stopping = [decision for decision in made if decision.action.stops]
        for moments, told in ((hints, made[:1]), (stops, stopping[:1])):
            for one in told:
                after = _amount(
                    run.steps[one.step + 1 : last], prices, run.steps[one.step].end or 0
                )
                moments.append(Moment(numbers[one.step], one.reason, one.message, after, finished))
    return TranscriptResult(
        run.agent, run.id, path, cwd, run.version, start, len(parts), total(parts),
        _together(hints), _together(stops), decisions,
    )  # fmt: skip


def _together(moments: Sequence[Moment]) -> Moment | None:
    """The first moment, with what came after those of all turns."""
    if not moments:
        return None
    return moments[0]._replace(
        after=total(moment.after for moment in moments),
        finished=all(moment.finished for moment in moments),
    )


def _turns(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    """The index at which each turn begins, and at which the next one does."""
    begins = [
        index
        for index, step in enumerate(steps)
        if index == 0 or (step.kind is Kind.OTHER and step.name == "user")
    ]
    return pairwise([*begins, len(steps)])


def _amount(steps: Sequence[Step], prices_file: str, since: int = 0) -> Amount:
    begun = since or next((step.start for step in steps if step.start), 0)
    end = max((step.end or 0 for step in steps), default=0)
    costs = [cost_of(step, prices_file) for step in steps if step.tokens is not None]
    return Amount(
        calls=sum(step.kind is Kind.TOOL for step in steps),
        minutes=max(end - begun, 0) / _NS_IN_MINUTE if begun else 0.0,
        tokens=sum(step.tokens or 0 for step in steps),
        dollars=sum((cost for cost in costs if cost is not None), 0.0),
        unpriced=costs.count(None),
    )


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
        write_page(
            "transcripts.html", html,
            circles=f"{overview.count - overview.quiet:,}", sessions=f"{overview.count:,}",
            saved=escape(overview.after.spelled()), groups="\n".join(_groups(overview)),
        )  # fmt: skip
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
            raise RecordingError(f"{path}: there is no such file or folder")
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
    say(f"{sessions} ({names}), decisions in {overview.count - overview.quiet:,} of them")
    for title, _, results in overview.groups:
        out.print()
        say(f"{title}: {len(results)}")
        out.print(table(_COLUMNS, [_cells(*each) for each in results]))
    if overview.after.calls:
        say("")
        say(f"After the stops came {overview.after.spelled()}.")


def _cells(result: TranscriptResult, moment: Moment) -> tuple[str, ...]:
    """Lines about a session with decisions."""
    does = "stops" if result.stop else "hints"
    after = moment.after
    return (
        result.session,
        when(result.start),
        result.agent,
        Path(result.cwd).name,
        f"{result.whole.calls:,}",
        f"{does} at call {moment.call}: {moment.reason}",
        f"{after.calls:,}",
        f"{after.minutes:,.0f}",
        f"{after.tokens:,}",
        after.price(),
        "finished" if moment.finished else "",
    )


def _groups(overview: Overview) -> Iterator[str]:
    """The groups on the page, which shows no content of a session."""
    for title, note, results in overview.groups:
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
        f"{result.whole.calls:,}: {escape(moment.reason)}</span>"
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
