"""`report`: the report of each recorded session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, console, json_line, table
from otel_loopguard.cli.replay import decision_row, replay_all

if TYPE_CHECKING:
    from otel_loopguard.core.report import Report, ToolReport
    from otel_loopguard.settings import Settings

_COLUMNS: Final = (
    *("session", "source", "steps#", "calls#", "failed#", "recovered#", "switches#", "loops#"),
    *("prevented#", "alerts#", "severity", "should stop", "tokens#", "interval s#", "lacking#"),
)
_TOOLS: Final = 20


def print_reports(files: Sequence[str], form: Format, settings: Settings) -> int:
    """Replays files and prints one object or row per session; returns the exit code.

    The table is followed by the tools of all sessions, the alerts by detector, and the cycles.
    """
    with Inputs(files) as inputs:
        found = (
            (result.source, result.report)
            for result in replay_all(inputs, settings)
            if result.report is not None
        )
        if form is Format.JSON:
            for source, report in found:
                json_line(row(source, report))
        else:
            _show(list(found))
    return inputs.code


def row(source: str, report: Report) -> dict[str, object]:
    """A report as one JSON object; rates are 0 to 1, times in seconds, unknown values null."""
    run = report.run
    return {
        "source": source,
        "session": report.session,
        "action": report.action.value,
        "should_stop": report.should_stop,
        "highest_severity": report.highest_severity,
        "totals": {
            "steps": report.steps,
            "actions": report.actions,
            "successes": report.successes,
            "failures": report.failures,
            "recovered": report.recovered,
            "strategy_switches": report.strategy_switches,
            "escalations": report.escalations,
            "model_calls": report.model_calls,
            "tokens": report.tokens,
            "loops_detected": report.loops_detected,
            "loops_prevented": report.loops_prevented,
            "alerts": report.alert_count,
        },
        "progress": {
            "changes": report.changes,
            "milestones": report.milestones,
            "news": report.news,
        },
        "alerts_by_type": report.alerts_by_type,
        "notes_by_type": report.notes_by_type,
        "alerts": [decision_row(decision) for decision in report.alerts],
        "cycles": list(report.cycles),
        "tools": [_tool(tool) for tool in report.tools],
        "error_rate": report.error_rate,
        "mean_interval_s": report.mean_interval_s,
        "duration_s": report.duration_s,
        "lacks": report.lacks,
        "switched_off": list(report.switched_off),
        "run": {
            "phases": [phase._asdict() for phase in run.phases],
            "retries": run.retries,
            "degraded": run.degraded,
            "compactions": run.compactions,
            "missing_dependencies": run.missing_dependencies,
            "looks": run.looks,
            "look_tokens": run.look_tokens,
            "look_cost": run.look_cost,
            "context_tokens": run.context_tokens,
            "peak_context_tokens": run.peak_context_tokens,
        },
        "feedback": {"confirmed": report.confirmed, "false_alarms": report.false_alarms},
    }


def _tool(tool: ToolReport) -> dict[str, object]:
    return {
        "name": tool.name,
        "calls": tool.calls,
        "errors": tool.errors,
        "error_rate": tool.error_rate,
    }


def _show(found: Sequence[tuple[str, Report]]) -> None:
    out = console()
    calls, errors, alerts, sessions = (Counter[str]() for _ in range(4))
    for _, report in found:
        alerts.update(report.alerts_by_type)
        sessions.update(report.alerts_by_type.keys())
        for tool in report.tools:
            calls[tool.name] += tool.calls
            errors[tool.name] += tool.errors
    cycles = Counter(period for _, report in found for period in report.cycles)
    out.print(table(_COLUMNS, [_cells(source, report) for source, report in found]))
    for columns, rows in (
        (
            ("tool", "calls#", "errors#", "failed#"),
            [
                (name, count, errors[name], f"{errors[name] / count:.0%}")
                for name, count in calls.most_common(_TOOLS)
            ],
        ),
        (
            ("alerts of", "alerts#", "sessions#"),
            [(name, count, sessions[name]) for name, count in alerts.most_common()],
        ),
        (("cycle of calls#", "times#"), sorted(cycles.items())),
    ):
        if rows:
            out.print()
            out.print(table(columns, rows))


def _cells(source: str, report: Report) -> tuple[object, ...]:
    return (
        report.session, source, report.steps, report.actions, report.failures, report.recovered,
        report.strategy_switches, report.loops_detected, report.loops_prevented,
        report.alert_count, report.highest_severity, "yes" if report.should_stop else "",
        report.tokens, report.mean_interval_s, sum(report.lacks.values()),
    )  # fmt: skip
