"""What a profiler would have known of recorded calls, each at the moment that it started."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Kind
from otel_loopguard.profiling import Profiler

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.profiling import Summary
    from otel_loopguard.settings import Settings

WARM: Final = 10
"""Records of a tool from which its estimates are held against what came."""


@dataclass(slots=True)
class Lesson:
    """How the estimates of one tool held.

    Attributes:
        tool: Name of the tool.
        calls: Finished calls with times.
        failures: Those of them that failed.
        measured: Calls that started when 10 or more records were there.
        within: Those of them that stayed within their estimate.
        alarms: Calls that ran past three times their estimate, so that they were called stalled.
        overdue: Those of them that ran past the overall limit too (E2): no false alarms.
    """

    tool: str
    calls: int = 0
    failures: int = 0
    measured: int = 0
    within: int = 0
    alarms: int = 0
    overdue: int = 0

    @property
    def share(self) -> float | None:
        """Share of the measured calls that stayed within their estimate; None without any."""
        return self.within / self.measured if self.measured else None


class _Expected(NamedTuple):
    """What was said of a call when it started."""

    step: Step
    session: str
    ms: float
    records: int
    limit_s: float | None


@dataclass(slots=True)
class Lessons:
    """Plays calls to a profiler in order of time: asked at the start, told at the end.

    Args:
        settings: Settings.
        overall_s: Seconds past which any call is stalled, whatever its estimate says (E2).

    Attributes:
        profiler: What was learned.
        steps: Canonical steps of all kinds.
        untimed: Tool calls whose times are not known: nothing is learned of them.
        tools: How the estimates held, by tool.
    """

    settings: Settings
    overall_s: float
    profiler: Profiler = field(init=False)
    steps: int = 0
    untimed: int = 0
    tools: dict[str, Lesson] = field(default_factory=dict[str, Lesson])
    _calls: list[tuple[Step, str]] = field(default_factory=list["tuple[Step, str]"])

    def __post_init__(self) -> None:
        self.profiler = Profiler(self.settings)

    def take(self, step: Step, session: str) -> None:
        """Takes a canonical step. Of a call its arguments are kept until `play`."""
        self.steps += 1
        if step.kind is not Kind.TOOL or not step.name:
            return
        if step.start <= 0 or not step.end or step.end < step.start:
            self.untimed += 1
            return
        self._calls.append((replace(step, outcome=None, error_text=None), session))

    def play(self) -> None:
        """Plays what was taken."""
        self._calls.sort(key=lambda each: each[0].start)
        open_: list[tuple[int, int, _Expected]] = []
        for number, (step, session) in enumerate(self._calls):
            while open_ and open_[0][0] <= step.start:
                self._ended(heappop(open_)[2])
            heappush(open_, (step.end or 0, number, self._expected(step, session)))
        while open_:
            self._ended(heappop(open_)[2])
        self._calls.clear()

    def summaries(self) -> Iterable[tuple[Lesson, Summary]]:
        """What was learned of each tool that still has a profile, the most used first."""
        for lesson in sorted(self.tools.values(), key=lambda each: -each.calls):
            summary = self.profiler.summary(lesson.tool)
            if summary is not None:
                yield lesson, summary

    def _expected(self, step: Step, session: str) -> _Expected:
        tool = step.name or ""
        estimate = self.profiler.estimate(tool, step.args)
        limit = self.profiler.limit_for(tool, step.args)
        return _Expected(step, session, estimate.duration_ms, estimate.records, limit)

    def _ended(self, expected: _Expected) -> None:
        step = expected.step
        tool = step.name or ""
        lesson = self.tools.setdefault(tool, Lesson(tool))
        ms = ((step.end or 0) - step.start) / 1e6
        lesson.calls += 1
        lesson.failures += step.error
        if expected.records >= WARM:
            lesson.measured += 1
            lesson.within += ms <= expected.ms
        if expected.limit_s is not None and ms > expected.limit_s * 1e3:
            lesson.alarms += 1
            lesson.overdue += ms > self.overall_s * 1e3
        self.profiler.finished(step, expected.session)
