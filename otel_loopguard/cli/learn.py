"""`learn`: what tool profiles come out of recorded runs, and how far their estimates hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.lessons import Lesson, Lessons
from otel_loopguard.cli.output import Format, cell, console, json_line, table
from otel_loopguard.guard import LoopGuard
from otel_loopguard.recordings import Recording, Run, SpanReplay

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.profiling import Summary
    from otel_loopguard.sessions import Session
    from otel_loopguard.settings import Settings

_COLUMNS: Final = (
    "tool", "calls#", "failed#", "cached#", "p50 ms#", "p90 ms#", "estimate ms#", "measured#",
    "within#", "alarms#", "overdue#",
)  # fmt: skip
_OVERALL_S: Final = 840.0
"""Seconds past which a call that is called stalled is no false alarm (E2)."""


def print_learned(files: Sequence[str], form: Format, settings: Settings) -> int:
    """Prints a row per tool of files and one for all together; gives the exit code.

    All calls of all files are played in order of time. Estimates are held against the calls that
    started when their tool had 10 records or more.
    """
    lessons = Lessons(settings, _OVERALL_S)
    with Inputs(files) as inputs:
        for recording in inputs:
            _read(inputs, recording, lessons, settings)
    lessons.play()
    rows = [*_tools(lessons), _all(lessons)]
    if form is Format.JSON:
        for row in rows:
            json_line(row)
    else:
        _print_table(rows)
    return inputs.code


def _read(inputs: Inputs, recording: Recording, lessons: Lessons, settings: Settings) -> None:
    def on_step(session: Session, _: int, step: Step) -> None:
        lessons.take(step, session.key)

    guard = LoopGuard(settings, clock="replay", on_step=on_step)
    replay = SpanReplay(guard, guard.reader.read)
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            for step in entry.steps:
                lessons.take(step, entry.id)
        else:
            replay.add(entry)
    replay.finish()
    guard.shutdown()


def _tools(lessons: Lessons) -> Iterator[dict[str, object]]:
    for lesson, summary in lessons.summaries():
        yield {"table": "tool", "tool": lesson.tool, **_held(lesson), **_learned(summary)}


def _learned(summary: Summary) -> dict[str, object]:
    return {
        "kept": summary.calls,
        "cached": summary.cached,
        "p50_ms": summary.p50_ms,
        "p90_ms": summary.p90_ms,
        "estimate_ms": summary.estimate_ms,
        "source": summary.source.value,
    }


def _held(lesson: Lesson) -> dict[str, object]:
    return {
        "calls": lesson.calls,
        "failures": lesson.failures,
        "failure_rate": lesson.failures / lesson.calls if lesson.calls else None,
        "measured": lesson.measured,
        "within": lesson.share,
        "alarms": lesson.alarms,
        "overdue": lesson.overdue,
    }


def _all(lessons: Lessons) -> dict[str, object]:
    """All tools together. Alarms are a share of the steps of any kind."""
    whole = Lesson("all")
    for lesson in lessons.tools.values():
        for name in ("calls", "failures", "measured", "within", "alarms", "overdue"):
            setattr(whole, name, getattr(whole, name) + getattr(lesson, name))
    steps = lessons.steps
    return {
        "table": "all",
        "tool": "all",
        **_held(whole),
        "steps": steps,
        "untimed": lessons.untimed,
        "alarm_rate": whole.alarms / steps if steps else None,
        "false_alarm_rate": (whole.alarms - whole.overdue) / steps if steps else None,
    }


def _print_table(rows: Sequence[dict[str, object]]) -> None:
    grid = table(_COLUMNS)
    for row in rows:
        grid.add_row(*(cell(value) for value in _cells(row)))
    console().print(grid)
    whole = rows[-1]
    console().print(
        f"{whole['steps']} steps, {whole['untimed']} calls without times; false alarms "
        f"{_percent(whole['false_alarm_rate'], 2)} of the steps, "
        f"{_percent(whole['alarm_rate'], 2)} with the overdue ones"
    )


def _cells(row: dict[str, object]) -> Iterator[object]:
    yield from (row["tool"], row["calls"], _percent(row["failure_rate"]), row.get("cached"))
    yield from (_milliseconds(row.get(name)) for name in ("p50_ms", "p90_ms", "estimate_ms"))
    yield from (row["measured"], _percent(row["within"]), row["alarms"], row["overdue"])


def _percent(value: object, digits: int = 0) -> str | None:
    return f"{value:.{digits}%}" if isinstance(value, float) else None


def _milliseconds(value: object) -> str | None:
    if not isinstance(value, float):
        return None
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
