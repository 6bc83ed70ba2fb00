"""What a session has come to, for people (D9, C15, C6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_loopguard.reports.run import RunMetrics

if TYPE_CHECKING:
    from otel_loopguard.core import Acceptance, Action, Decision, Severity


@dataclass(frozen=True, slots=True)
class ToolReport:
    """How one tool was used.

    Attributes:
        name: Its name.
        calls: Finished calls.
        errors: Those that failed.
    """

    name: str
    calls: int
    errors: int

    @property
    def error_rate(self) -> float:
        """Share of the calls that failed, 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a session did, and what the guard made of it. It has no content of calls.

    Source: FEATURES D9 (totals, progress, alerts, `should_stop`), C15 (counters), C6 (analysis),
    E14 (`run`), A10 (detected, prevented, confirmed, false alarms).

    Attributes:
        session: Key of the session.
        action: What its flag says now.
        should_stop: Whether the flag says pause or abort; in shadow mode, whether any decision did.
        highest_severity: The worst severity of all alerts; None without any.
        steps: Canonical steps of any kind.
        actions: Finished tool calls.
        successes: Those that did not fail.
        failures: Those that failed.
        recovered: Successes of a tool whose call before had failed.
        strategy_switches: Changes to another tool after a failure or an alert.
        escalations: Decisions that call for a person (`ask`, `pause`, `escalate_human`).
        model_calls: Model calls.
        changes: How often the world was changed, as far as can be told.
        milestones: Percent of the declared milestones that are done, 0 to 100; None if none was
            declared.
        news: Mean novelty of the tools' answers, 0 to 1; None if none was looked at.
        loops_detected: Different loops that a hint or more was given for.
        loops_prevented: Those that were denied, paused or aborted; 0 in shadow mode.
        alert_count: Decisions that are a hint or more.
        alerts: The newest of them, at most `report_alerts` (10).
        alerts_by_type: Alerts by detector.
        notes_by_type: What was only noted on the trace (`allow`), by detector.
        cycles: Lengths of the cycles found, in calls, in the order of their discovery.
        tools: The most used tools, at most `report_tools` (10), by calls.
        tokens: Input and output tokens of model calls; None if no call said it.
        mean_interval_s: Mean seconds between the starts of tool calls; None without times.
        duration_s: Seconds from the first start to the last end; None without times.
        lacks: Tool calls that lacked something, by what it was: `args`, `outcome`.
        switched_off: Detectors that failed and were switched off in this session.
        confirmed: Decisions that feedback confirmed.
        false_alarms: Decisions that feedback called a false alarm.
        execution: How often the runtime asked before a call, and how the answers were taken; None
            if it did not.
        run: Phases, retries and the like, for whoever orchestrates (E14).
    """

    session: str
    action: Action
    should_stop: bool
    highest_severity: Severity | None
    steps: int
    actions: int
    successes: int
    failures: int
    recovered: int
    strategy_switches: int
    escalations: int
    model_calls: int
    changes: int
    milestones: float | None
    news: float | None
    loops_detected: int
    loops_prevented: int
    alert_count: int
    alerts: tuple[Decision, ...]
    alerts_by_type: Mapping[str, int]
    notes_by_type: Mapping[str, int]
    cycles: tuple[int, ...]
    tools: tuple[ToolReport, ...]
    tokens: int | None
    mean_interval_s: float | None
    duration_s: float | None
    lacks: Mapping[str, int]
    switched_off: tuple[str, ...]
    confirmed: int
    false_alarms: int
    execution: Acceptance | None = None
    run: RunMetrics = field(default_factory=RunMetrics)

    @property
    def error_rate(self) -> float | None:
        """Share of the tool calls that failed, 0 to 1; None without any."""
        return self.failures / self.actions if self.actions else None

    @property
    def precision(self) -> float | None:
        """Share of the decisions with feedback that it confirmed, 0 to 1; None without any."""
        told = self.confirmed + self.false_alarms
        return self.confirmed / told if told else None
