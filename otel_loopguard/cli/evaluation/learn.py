"""`learn`: tool profiles from recorded runs, and how well their estimates hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, json_line, table
from otel_loopguard.core import Kind
from otel_loopguard.execution.profiler import Profiler
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.replay import RecordedSession, Recording, Run, SpanReplay

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.execution.latency import Summary
    from otel_loopguard.sessions import Session
    from otel_loopguard.settings import Settings

WARM: Final = 10
"""Records of a tool from which on its estimates are compared with its calls."""


@dataclass(slots=True)
class ToolScore:
    """How well the estimates of one tool held."""

    tool: str
    calls: int = 0  # finished ones, with times
    failures: int = 0
    measured: int = 0  # calls that started when there were 10 records or more
    within: int = 0  # those of them that stayed within their estimate
    alarms: int = 0  # calls reported as stalled: past three times their estimate
    overdue: int = 0  # those of them past the overall limit too: no false alarms

    @property
    def share(self) -> float | None:
        """Share of the measured calls that stayed within their estimate; None without any."""
        return self.within / self.measured if self.measured else None


class _Expected(NamedTuple):
    """What was expected of a call when it started."""

    step: Step
    session: str
    ms: float
    records: int
    limit_s: float | None


@dataclass(slots=True)
class ProfilerReplay:
    """Replays calls through a profiler in order of time: an estimate at the start of each."""

    settings: Settings
    overall_s: float
    profiler: Profiler = field(init=False)
    steps: int = 0  # of all kinds
    untimed: int = 0  # tool calls whose times are not known: nothing is learned of them
    scores: dict[str, ToolScore] = field(default_factory=dict[str, ToolScore])
    _calls: list[tuple[Step, str]] = field(default_factory=list["tuple[Step, str]"])

    def __post_init__(self) -> None:
        self.profiler = Profiler(self.settings)

    def add(self, step: Step, session: str) -> None:
        """Adds a canonical step. The arguments of a call are kept until `run`."""
        self.steps += 1
        if step.kind is not Kind.TOOL or not step.name:
            return
        if step.start <= 0 or not step.end or step.end < step.start:
            self.untimed += 1
            return
        self._calls.append((replace(step, outcome=None, error_text=None), session))

    def run(self) -> None:
        """Replays the calls that were added."""
        self._calls.sort(key=lambda each: each[0].start)
        open_: list[tuple[int, int, _Expected]] = []
        for number, (step, session) in enumerate(self._calls):
            while open_ and open_[0][0] <= step.start:
                self._ended(heappop(open_)[2])
            heappush(open_, (step.end or 0, number, self._expected(step, session)))
        while open_:
            self._ended(heappop(open_)[2])
        self._calls.clear()

    def summaries(self) -> Iterable[tuple[ToolScore, Summary]]:
        """The profile of each tool that still has one, the most used first."""
        for score in sorted(self.scores.values(), key=lambda each: -each.calls):
            summary = self.profiler.summary(score.tool)
            if summary is not None:
                yield score, summary

    def _expected(self, step: Step, session: str) -> _Expected:
        tool = step.name or ""
        estimate = self.profiler.estimate(tool, step.args)
        limit = self.profiler.limit_for(tool, step.args)
        return _Expected(step, session, estimate.duration_ms, estimate.records, limit)

    def _ended(self, expected: _Expected) -> None:
        step = expected.step
        tool = step.name or ""
        score = self.scores.setdefault(tool, ToolScore(tool))
        ms = ((step.end or 0) - step.start) / 1e6
        score.calls += 1
        score.failures += step.error
        if expected.records >= WARM:
            score.measured += 1
            score.within += ms <= expected.ms
        if expected.limit_s is not None and ms > expected.limit_s * 1e3:
            score.alarms += 1
            score.overdue += ms > self.overall_s * 1e3
        self.profiler.finished(step, expected.session)


_COLUMNS: Final = (
    "tool", "calls#", "failed#", "p50 ms#", "p90 ms#", "estimate ms#", "measured#", "within#",
    "alarms#", "overdue#",
)  # fmt: skip
_OVERALL_S: Final = 840.0
"""Seconds after which a stall that is reported is no false alarm."""


def print_learned(files: Sequence[str], form: Format, settings: Settings) -> int:
    """Prints a row per tool of files and one for all together; returns the exit code.

    All calls of all files are replayed in order of time. Estimates are compared with the calls that
    started when their tool had 10 records or more.
    """
    replay = ProfilerReplay(settings, _OVERALL_S)
    with Inputs(files) as inputs:
        for recording in inputs:
            _read(inputs, recording, replay, settings)
    replay.run()
    rows = [*_tools(replay), _all(replay)]
    if form is Format.JSON:
        for row in rows:
            json_line(row)
    else:
        _print_table(rows)
    return inputs.code


def _read(
    inputs: Inputs,
    recording: Recording | RecordedSession,
    replay: ProfilerReplay,
    settings: Settings,
) -> None:
    def on_step(session: Session, _: int, step: Step) -> None:
        replay.add(step, session.key)

    guard = LoopGuard(settings, clock="replay", on_step=on_step)
    spans = SpanReplay(guard, guard.reader.read)
    for entry in inputs.entries(recording):
        if isinstance(entry, Run):
            for step in entry.steps:
                replay.add(step, entry.id)
        else:
            spans.add(entry)
    spans.finish()
    guard.shutdown()


def _tools(replay: ProfilerReplay) -> Iterator[dict[str, object]]:
    for score, summary in replay.summaries():
        yield {
            "table": "tool",
            "tool": score.tool,
            **_figures(score),
            "kept": summary.calls,
            "p50_ms": summary.p50_ms,
            "p90_ms": summary.p90_ms,
            "estimate_ms": summary.estimate_ms,
            "source": summary.source.value,
        }


def _figures(score: ToolScore) -> dict[str, object]:
    return {
        "calls": score.calls,
        "failures": score.failures,
        "failure_rate": score.failures / score.calls if score.calls else None,
        "measured": score.measured,
        "within": score.share,
        "alarms": score.alarms,
        "overdue": score.overdue,
    }


def _all(replay: ProfilerReplay) -> dict[str, object]:
    """All tools together. Alarms are a share of the steps of any kind."""
    whole = ToolScore("all")
    for score in replay.scores.values():
        for name in ("calls", "failures", "measured", "within", "alarms", "overdue"):
            setattr(whole, name, getattr(whole, name) + getattr(score, name))
    steps = replay.steps
    return {
        "table": "all",
        "tool": "all",
        **_figures(whole),
        "steps": steps,
        "untimed": replay.untimed,
        "alarm_rate": whole.alarms / steps if steps else None,
        "false_alarm_rate": (whole.alarms - whole.overdue) / steps if steps else None,
    }


def _print_table(rows: Sequence[dict[str, object]]) -> None:
    console().print(table(_COLUMNS, ([*_cells(row)] for row in rows)))
    whole = rows[-1]
    console().print(
        f"{whole['steps']} steps, {whole['untimed']} calls without times; false alarms "
        f"{_percent(whole['false_alarm_rate'], 2)} of the steps, "
        f"{_percent(whole['alarm_rate'], 2)} with the overdue ones"
    )


def _cells(row: dict[str, object]) -> Iterator[object]:
    yield from (row["tool"], row["calls"], _percent(row["failure_rate"]))
    yield from (_milliseconds(row.get(name)) for name in ("p50_ms", "p90_ms", "estimate_ms"))
    yield from (row["measured"], _percent(row["within"]), row["alarms"], row["overdue"])


def _percent(value: object, digits: int = 0) -> str | None:
    return f"{value:.{digits}%}" if isinstance(value, float) else None


def _milliseconds(value: object) -> str | None:
    if not isinstance(value, float):
        return None
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
