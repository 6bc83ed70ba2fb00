"""`steps`, `report` and `explain`: what runs did, what they came to, and why any was stopped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from rich.text import Text

from otel_loopguard.cli import live
from otel_loopguard.cli.output import (
    Format,
    Inputs,
    console,
    give,
    json_line,
    line,
    say,
    sentence,
    table,
)
from otel_loopguard.cli.replay import DECISION, RecordedStep, recorded_steps, replay_all
from otel_loopguard.core.report import decision_row
from otel_loopguard.evidence import error_class, parsed
from otel_loopguard.policy.explain import NOTHING_FOUND

if TYPE_CHECKING:
    from otel_loopguard.core.report import Report
    from otel_loopguard.settings import Settings

_COLUMNS: Final = (
    *("session", "source", "steps#", "calls#", "failed#", "recovered#", "switches#", "loops#"),
    *("prevented#", "alerts#", "severity", "should stop", "tokens#", "interval s#", "lacking#"),
)
# Tools of the table: those that are called most; JSON has all.
_TOOLS_SHOWN: Final = 20


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
        give(found, form, _row, _show)
    return inputs.code


def _row(found: tuple[str, Report]) -> dict[str, object]:
    """A report as one JSON object, by the names of its fields."""
    source, report = found
    names = (*(each.name for each in fields(report)), "error_rate", "precision")
    phases = [phase._asdict() for phase in report.run.phases]
    return {
        "source": source,
        **{name: getattr(report, name) for name in names},
        "alerts": [decision_row(decision, *DECISION) for decision in report.alerts],
        "tools": [{**asdict(tool), "error_rate": tool.error_rate} for tool in report.tools],
        "run": {**asdict(replace(report.run, phases=())), "phases": phases},
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
    busiest = [
        (name, count, errors[name], f"{errors[name] / count:.0%}")
        for name, count in calls.most_common(_TOOLS_SHOWN)
    ]
    alerting = [(name, count, sessions[name]) for name, count in alerts.most_common()]
    for columns, rows in (
        (("tool", "calls#", "errors#", "failed#"), busiest),
        (("alerts of", "alerts#", "sessions#"), alerting),
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


def print_explanations(
    what: str, form: Format, settings: Settings, store: str | None, socket: str | None
) -> int:
    """Prints one text or object per session of a recording, or of a live session.

    Sessions about which there is nothing to say are only counted in a text.

    Returns:
        The exit code; 1 if no live process knows the session.
    """
    if what == "-" or Path(what).exists():
        quiet, last = 0, ""
        with Inputs([what]) as inputs:
            for result in replay_all(inputs, settings):
                told = result.explanation
                if told is not None and not told.found and form is Format.TABLE:
                    quiet, last = quiet + 1, str(told)
                elif told is not None:
                    _explain(form, {"source": result.source, **told.to_dict()}, str(told))
        if quiet:
            said = last if quiet == 1 else f"in {quiet:,} sessions {NOTHING_FOUND}"
            _explain(form, {}, said)
        return inputs.code
    transport, known = live.transport_to(store, socket), False
    for reply in transport.ask({"op": "explain", "session": what}):
        if isinstance(reply.get("explanation"), dict) and isinstance(reply.get("text"), str):
            known = True
            _explain(form, reply["explanation"], reply["text"])
        else:
            say(f"otel-loopguard: {reply.get('message')}", error=True)
    if known:
        return 0
    return live.report_unknown(transport, "session", what, "there is no such file, and ")


def _explain(form: Format, told: dict[str, Any], text: str) -> None:
    if form is Format.JSON:
        json_line(told)
    else:
        for line in text.splitlines():
            sentence(line)


_INDENT: Final = 8  # columns before an answer: the number of a step, and two more
_Row = dict[str, object]


def print_steps(files: Sequence[str], form: Format) -> int:
    """Prints the canonical steps of files; returns the exit code.

    Labelled runs give their steps as they stand; spans go through the guard, which counts each call
    once whoever reported it. Memory does not grow with the length of the files.
    """
    with Inputs(files, bar=not sys.stdout.isatty()) as inputs:
        show = json_line if form is Format.JSON else _Lines().print
        for recording in inputs:
            for found in recorded_steps(recording.name, inputs.entries(recording)):
                show(_step_row(found))
    return inputs.code


def _step_row(found: RecordedStep) -> dict[str, object]:
    """A step as one JSON object."""
    source, session, number, step = found
    known = step.start > 0 or bool(step.end)
    text = step.error_text or step.error_type or "error"
    return {
        "source": source,
        "session": session,
        "index": number,
        "kind": step.kind.value,
        "tool": step.name,
        "args": parsed(step.args),
        "outcome": step.outcome,
        "error": text if step.error else None,
        "error_class": error_class(step).value if step.error else None,
        "agent": step.agent,
        "node": step.node,
        "start": step.start / 1e9 if known else None,
        "end": step.end / 1e9 if step.end else None,
        "tokens": step.tokens,
        "dialect": step.dialect,
        "call_id": step.call_id,
        "lacks": list(step.lacks),
    }


class _Lines:
    """Steps as lines: the call with its arguments, and below it what came of it."""

    def __init__(self) -> None:
        self._session: object = None
        self._out = console()
        # In a pipe as long as two lines of a terminal.
        self._width = min(self._out.width, 160) - _INDENT

    def print(self, known: _Row) -> None:
        session = known["source"], known["session"]
        if session != self._session:
            self._session = session
            self._out.print(Text.assemble("session ", (line(known["session"], 400), "bold")))
        # For people steps count from 1, as in `replay` and `show`.
        number = cast("int", known["index"]) + 1
        called = f"{number:{_INDENT - 2}}  {known['kind']:5}  {line(known['tool'], 60)}  "
        self._print(called, known["args"], "dim")
        if known["error"] is not None:
            self._print("✗ ".rjust(_INDENT), known["error"], "red")
        elif known["outcome"] is not None:
            self._print("→ ".rjust(_INDENT), known["outcome"], "")

    def _print(self, begin: str, value: object, style: str) -> None:
        size = max(self._width + _INDENT - len(begin), 20)
        self._out.print(
            Text.assemble(begin, (line(value, size), style)), overflow="ellipsis", no_wrap=True
        )
