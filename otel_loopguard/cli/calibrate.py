"""Learned from past runs: the stop line (`calibrate`) and tool profiles (`learn`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.cli.evaluate import refuse_unmet
from otel_loopguard.cli.output import Format, Inputs, console, give, sentence, table
from otel_loopguard.cli.replay import ReplayResult, Results, recorded_steps
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.detectors.budget import step_clocks
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay import Recording, Run, Transcript
from otel_loopguard.replay.file import untold
from otel_loopguard.sessions.profiler import Profiler
from otel_loopguard.settings._sources import FILE, read_file

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.views import RecordedSpan

HIGHEST: Final = 100
"""The highest line that the settings take (`deny_after`, `abort_after`)."""


def print_calibration(  # noqa: PLR0913  # the options of the command
    files: Sequence[str],
    form: Format,
    settings: Settings,
    *,
    rate: float,
    bad: AbstractSet[str],
    output: str | None,
) -> int:
    """Finds the stop line, says what it would have done, and writes a settings file.

    Good runs are labelled lines that do not loop or whose task succeeded, sessions of coding agents
    whose last turn was not interrupted, and all sessions of files of spans. The files are read once
    for every line that is tried; nothing of them is kept.

    Args:
        files: The runs.
        form: How the result is printed.
        settings: Those whose stop line is moved.
        rate: Of good runs that may be stopped, 0 to 1.
        bad: Runs and sessions that did not go well.
        output: A settings file to write.
    """
    _check(settings, output)
    runs = left_out = before = 0
    noticed: set[_Place] = set()  # no other good run can be stopped
    met: set[str] = set()
    with Inputs(files) as inputs:
        for recording in inputs:
            if recording.size is None:
                why = "calibrate reads its files more than once: no pipe, and not standard input"
                raise LoopGuardError(f"{recording.path}: {why}")
        for index, recording in enumerate(inputs):
            entries = inputs.entries(recording)
            for place, good, result in _results(index, recording.name, entries, settings, None):
                met |= bad & {result.session}
                if not good or result.session in bad:
                    left_out += 1
                    continue
                runs += 1
                before += result.strongest.stops
                if result.strongest is not Action.ALLOW:
                    noticed.add(place)
    refuse_unmet("--except", bad - met)
    limit = allowed(runs, rate)
    lines = _search(list(inputs), settings, noticed, limit)
    line = min(line for line, stopped in lines.items() if stopped <= limit)
    changed = changes(settings, line)
    if output is not None:
        _write(Path(output), changed, f"{runs} good runs,\n# for a rate of false stops of {rate:g}")
    row = {
        "false_stops": rate,
        "runs": runs,
        "left_out": left_out,
        "noticed": len(noticed),
        "before": before,
        "line": line,
        "lines": [{"line": line, "stopped": lines[line]} for line in sorted(lines)],
        "settings": changed,
    }
    give([row], form, dict, lambda rows: _show(rows[0], output))
    return inputs.code


def _check(settings: Settings, output: str | None) -> None:
    if not Action(settings.max_action).stops:
        msg = f"max_action = {settings.max_action!r}: nothing is ever stopped, so there is no line"
        raise LoopGuardError(msg)
    path = Path(output) if output is not None else None
    if path is not None and (path.exists() or not path.parent.is_dir()):
        raise LoopGuardError(f"--output {output}: expected a new file in a folder that exists")
    if path is not None and path.suffix != ".toml":
        raise LoopGuardError(f"--output {output}: expected a name ending in .toml")


def changes(settings: Settings, line: int) -> dict[str, int]:
    """The settings that put the stop line somewhere.

    Deny and pause stand on the line, abort as far above it as it stands above deny now.
    """
    apart = max(0, settings.abort_after - settings.deny_after)
    return {"deny_after": line, "pause_after": line, "abort_after": min(line + apart, HIGHEST)}


def at_line(settings: Settings, line: int) -> Settings:
    """The settings with the stop line somewhere else."""
    return settings.model_copy(update=changes(settings, line))


def _show(made: Mapping[str, Any], output: str | None) -> None:
    """Prints a calibration for people."""
    out = console()
    sentence(
        f"Of {made['runs']:,} good runs {made['noticed']:,} are noticed, and {made['before']:,} "
        "would have been stopped. How many are at each stop line that was tried:"
    )
    out.print(table(("stop line#", "stopped#"), [[*each.values()] for each in made["lines"]]))
    out.print()
    if made["left_out"]:
        typer.echo(f"{made['left_out']:,} runs that are not known to be good are left out.")
    line = made["line"]
    sentence(
        f"A run like these {made['runs']} is stopped with a probability of {made['false_stops']:g} "
        f"at most, if a stop takes {line} confirmation{'s' if line > 1 else ''} after the hint."
    )
    typer.echo(f"Written to {output}:\n" if output else "Settings:\n")
    typer.echo(_toml(made["settings"]), nl=False)


def _write(path: Path, changed: Mapping[str, int], by: str) -> None:
    """Writes a settings file that stands alone: the rate holds with the settings of the replay."""
    base = os.environ.get(FILE)
    given = read_file(Path(base)) if base else {}
    also = f",\n# with the other settings of {json.dumps(base)}" if base else ""
    text = f"# Set by `otel-loopguard calibrate` from {by}{also}.\n{_toml({**given, **changed})}"
    # There may be secrets in it: nobody may read it who cannot read the one that it is from.
    path.touch(Path(base).stat().st_mode & 0o666 if base else 0o666)
    path.write_text(text, encoding="utf-8")


def _toml(settings: Mapping[str, object]) -> str:
    return "".join(f"{name} = {_value(each)}\n" for name, each in settings.items())


def _value(value: object) -> str:
    """A value of a settings file as TOML, on one line."""
    if is_map(value):
        named = ((str(name), each) for name, each in value.items() if each is not None)
        return f"{{{', '.join(f'{_value(name)} = {_value(each)}' for name, each in named)}}}"
    if is_list(value):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def allowed(runs: int, rate: float) -> int:
    """Number of the calibration runs that a stop line may stop.

    Split-conformal: with the line at the ceil((n + 1)(1 - rate)) / n quantile of the runs' scores
    (the confirmations that a run reached), a further run of the same kind is stopped with
    probability `rate` at most. So the line is the lowest that stops no more runs than lie above
    that quantile.
    """
    if not 0 < rate <= 1:
        msg = f"--false-stops {rate:g}: no number of runs shows that; expected more than 0, up to 1"
        raise LoopGuardError(msg)
    # As it was written: 0.001 is one in a thousand, and not the float beside it.
    share = Fraction(repr(float(rate)))
    above = runs - ceil((runs + 1) * (1 - share))
    if above < 0:
        enough = f", enough for one false stop in {runs + 1:,}" if runs else ""
        least = ceil(1 / share) - 1
        raise LoopGuardError(
            f"--false-stops {rate:g} needs at least {least:,} good runs, found {runs:,}{enough}"
        )
    return above


_Place = tuple[int, str]
"""A run: index of its recording, and its number (a labelled run) or session (of spans) in it."""


def _search(
    recordings: Sequence[Recording], settings: Settings, noticed: set[_Place], limit: int
) -> dict[int, int]:
    """Number of runs that are stopped at each line tried: doubling up, then halving down.

    What one line does not stop, no higher one does, so that only the runs stopped at a lower line
    are looked at again.
    """
    tried: dict[int, int] = {}
    low, high, looked_at = 0, HIGHEST + 1, noticed
    while high - low > 1:
        line = (low + high) // 2 if high in tried else min(2 * low or 1, HIGHEST)
        stopped = _stopped(recordings, at_line(settings, line), looked_at)
        tried[line] = len(stopped)
        if len(stopped) <= limit:
            high = line
        else:
            low, looked_at = line, stopped
    if high not in tried:
        raise LoopGuardError(
            f"{tried[HIGHEST]} of these runs are stopped even after {HIGHEST} confirmations, and "
            f"at most {limit} may be: look at them with `replay`; what did not go well can be left "
            "out with --except, and a verdict that stands on no ladder (a budget, say) has its own "
            "setting"
        )
    return tried


def _stopped(recordings: Sequence[Recording], settings: Settings, only: set[_Place]) -> set[_Place]:
    """Which of some runs are stopped."""
    found: set[_Place] = set()
    for index, known in enumerate(recordings):
        if not any(place[0] == index for place in only):
            continue
        recording = known.reopened(untold)  # told when it was read first
        for place, _, result in _results(index, recording.name, recording, settings, only):
            if place in only and result.strongest.stops:
                found.add(place)
    return found


def _results(
    index: int,
    name: str,
    entries: Iterable[RecordedSpan | Run],
    settings: Settings,
    only: AbstractSet[_Place] | None,
) -> Iterator[tuple[_Place, bool, ReplayResult]]:
    """Place, whether it is good, and result, for every run; of labelled ones some if `only`."""
    number = 0

    def wanted() -> Iterator[RecordedSpan | Run]:
        nonlocal number
        for number, entry in enumerate(entries):
            if not isinstance(entry, Run) or only is None or (index, str(number)) in only:
                yield entry

    for run, result in Results(name, settings).replay(wanted()):
        yield (index, str(number) if run else result.session), run is None or _good(run), result


def _good(run: Run) -> bool:
    if isinstance(run, Transcript):
        return run.endings[-1] != "interrupted"
    return run.loop is False or (run.loop is None and run.success is True)


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
    give(replay.rows(), form, dict, _show_profiles)
    return inputs.code


@dataclass(slots=True)
class _Score:
    """Accuracy of the estimates of a tool."""

    calls: int = 0  # finished ones, with times
    failures: int = 0
    measured: int = 0  # calls that started when there were 10 records or more
    within: int = 0  # those of them that stayed within their estimate
    alarms: int = 0  # calls reported as stalled: past their estimate by far, or `step_timeout_s`
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
        self._settings, self._profiler = settings, Profiler(settings)
        self._steps = 0  # of all kinds
        self._untimed = 0  # tool calls whose times are not known: nothing is learned of them
        self._scores: dict[str, _Score] = {}
        self._whole = _Score()
        self._calls: list[tuple[Step, str]] = []

    def add(self, step: Step, session: str) -> None:
        """Adds a canonical step. The arguments of a call are kept until `run`."""
        self._steps += 1
        if step.kind is not Kind.TOOL or not step.name or step.refused:
            return  # a refused call was not made
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
        limit_s = inf
        if tool not in self._settings.exempt:
            known_s = self._profiler.limit_for(tool, step.args)
            limit_s = step_clocks(self._settings, tool, step.start, known_s)[0].limit_s

        def end() -> None:
            ms = ((step.end or 0) - step.start) / 1e6
            alarm = ms > limit_s * 1e3
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


def _show_profiles(rows: Sequence[dict[str, object]]) -> None:
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
