"""`learn`: tool profiles from recorded runs, and how well their estimates hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, give, table
from otel_loopguard.cli.replay import recorded_steps
from otel_loopguard.core import Kind, Step
from otel_loopguard.execution.profiler import Profiler

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

# Records of a tool from which on its estimates are compared with its calls: an estimate covers nine
# of ten, and the longest of fewer calls is no better known.
_WARM: Final = 10
# 14 minutes, after which a stall that is reported is no false alarm.
_OVERDUE_MS: Final = 840_000.0
_COLUMNS: Final = (
    *("tool", "calls#", "failed#", "p50 ms#", "p90 ms#", "estimate ms#", "measured#", "within#"),
    *("alarms#", "overdue#"),
)


def print_learned(files: Sequence[str], form: Format, settings: Settings) -> int:
    """Prints a row per tool of files and one for all together; returns the exit code.

    All calls of all files are replayed in order of time. Estimates are compared with the calls that
    started when their tool had 10 records or more.
    """
    replay = _ProfilerReplay(settings)
    with Inputs(files) as inputs:
        for recording in inputs:
            for found in recorded_steps(recording.name, inputs.entries(recording), settings):
                replay.add(found.step, found.session)
    replay.run()
    give(replay.rows(), form, dict, _show)
    return inputs.code


@dataclass(slots=True)
class _Score:
    """Accuracy of the estimates of a tool."""

    calls: int = 0  # finished ones, with times
    failures: int = 0
    measured: int = 0  # calls that started when there were 10 records or more
    within: int = 0  # those of them that stayed within their estimate
    alarms: int = 0  # calls reported as stalled: past three times their estimate
    overdue: int = 0  # those of them past 14 minutes: no false alarms

    def row(self) -> dict[str, object]:
        """Cells in the row of a tool, and in the row of all tools."""
        return {
            **asdict(self),
            "failure_rate": self.failures / self.calls if self.calls else None,
            "within": self.within / self.measured if self.measured else None,
        }


class _ProfilerReplay:
    """Replays calls through a profiler in order of time: an estimate at the start of each."""

    def __init__(self, settings: Settings) -> None:
        self._profiler = Profiler(settings)
        self._steps = 0  # of all kinds
        self._untimed = 0  # tool calls whose times are not known: nothing is learned of them
        self._scores: dict[str, _Score] = {}
        self._whole = _Score()
        self._calls: list[tuple[Step, str]] = []

    def add(self, step: Step, session: str) -> None:
        """Adds a canonical step. The arguments of a call are kept until `run`."""
        self._steps += 1
        if step.kind is not Kind.TOOL or not step.name:
            return
        if step.start <= 0 or not step.end or step.end < step.start:
            self._untimed += 1
            return
        self._calls.append((replace(step, outcome=None, error_text=None), session))

    def run(self) -> None:
        """Replays the calls that were added."""
        ends: list[tuple[int, int, Callable[[], None]]] = []
        for number, (step, session) in enumerate(sorted(self._calls, key=lambda one: one[0].start)):
            while ends and ends[0][0] <= step.start:
                heappop(ends)[2]()
            heappush(ends, (step.end or 0, number, self._started(step, session)))
        while ends:
            heappop(ends)[2]()
        self._calls.clear()

    def _started(self, step: Step, session: str) -> Callable[[], None]:
        """Estimates a call; returns what is done when it ends."""
        tool = step.name or ""
        estimate = self._profiler.estimate(tool, step.args)
        limit_s = self._profiler.limit_for(tool, step.args)

        def end() -> None:
            ms = ((step.end or 0) - step.start) / 1e6
            alarm = limit_s is not None and ms > limit_s * 1e3
            for score in (self._scores.setdefault(tool, _Score()), self._whole):
                score.calls += 1
                score.failures += step.error
                if estimate.records >= _WARM:
                    score.measured += 1
                    score.within += ms <= estimate.duration_ms
                score.alarms += alarm
                score.overdue += alarm and ms > _OVERDUE_MS
            self._profiler.finished(step, session)

        return end

    def rows(self) -> Iterator[dict[str, object]]:
        """A row per tool that still has a profile, the most used first, and one of all together."""
        for tool, score in sorted(self._scores.items(), key=lambda each: -each[1].calls):
            summary = self._profiler.summary(tool)
            if summary is not None:
                yield {
                    "table": "tool",
                    "tool": tool,
                    **score.row(),
                    "kept": summary.calls,
                    "p50_ms": summary.p50_ms,
                    "p90_ms": summary.p90_ms,
                    "estimate_ms": summary.estimate_ms,
                    "source": summary.source.value,
                }
        whole, steps = self._whole, self._steps
        yield {
            "table": "all",
            "tool": "all",
            **whole.row(),
            "steps": steps,
            "untimed": self._untimed,
            "alarm_rate": whole.alarms / steps if steps else None,
            "false_alarm_rate": (whole.alarms - whole.overdue) / steps if steps else None,
        }


def _show(rows: Sequence[dict[str, object]]) -> None:
    cells = [
        [
            *(row["tool"], row["calls"], _percent(row["failure_rate"])),
            *(_milliseconds(row.get(name)) for name in ("p50_ms", "p90_ms", "estimate_ms")),
            *(row["measured"], _percent(row["within"]), row["alarms"], row["overdue"]),
        ]
        for row in rows
    ]
    console().print(table(_COLUMNS, cells))
    whole = rows[-1]
    alarms = _percent(whole["false_alarm_rate"], 2)
    told = "" if alarms is None else (
        f"; false alarms {alarms} of the steps, "
        f"{_percent(whole['alarm_rate'], 2)} with the overdue ones"
    )  # fmt: skip
    console().print(f"{whole['steps']} steps, {whole['untimed']} calls without times{told}")


def _percent(value: object, digits: int = 0) -> str | None:
    return f"{value:.{digits}%}" if isinstance(value, float) else None


def _milliseconds(value: object) -> str | None:
    if not isinstance(value, float):
        return None
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
