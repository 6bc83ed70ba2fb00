"""An escalation of one session to people, and the possible answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.core.report import Act, Context, Report, act_row

if TYPE_CHECKING:
    from otel_loopguard.core.decision import Decision

_TOOLS: Final = 5
"""Most used tools in a message to people: it fits a screen of a phone."""


class Answer(str, Enum):
    """Answers to an escalation."""

    CONTINUE = "continue"
    ABORT = "abort"
    MODIFY_PLAN = "modify_plan"
    SKIP_TASK = "skip_task"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing that a person may do.

    Attributes:
        answer: The answer that does it.
        text: What it comes to, in a few words.
    """

    answer: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Escalation:
    """An escalation of one session to people.

    It has no content of calls, unless that is wanted (`escalation_content`).

    Attributes:
        id: Its id, 16 hex digits.
        session: Key of the session.
        cause: Why it is put before people: `pause`, `ask`, `cycle`, `severity` or `application`.
        reason: What was measured, or what the application says, in a sentence.
        at: When, nanoseconds since the epoch.
        until: When the fallback follows, likewise.
        fallback: What follows then: an answer, or `wait`.
        held: Whether the session waits for the answer.
        decision: The decision behind it; None where the application asks.
        agent: Name of the agent that was seen last, if one was.
        task: Id of the task of a plan that was worked on last, if one was named.
        acts: The last actions, oldest first; `tuning.escalation.actions` (5) of them.
        suggestions: What people may do.
        report: What the session has come to; None where nothing was seen of it.
        process: Name of the process that it runs in.
        question: What to ask a person, as the decision says it.
        context: Long-term context of the session: insights, files, patterns, what was tried
            in vain. It has content of calls, for callbacks in this process.
        shows_content: Whether content may leave the process with it (`escalation_content`).
    """

    id: str
    session: str
    cause: str
    reason: str
    at: int
    until: int
    fallback: str
    held: bool
    decision: Decision | None = None
    agent: str | None = None
    task: str | None = None
    acts: tuple[Act, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    report: Report | None = None
    process: str = ""
    question: str | None = None
    context: Context | None = None
    shows_content: bool = False

    @property
    def trace_id(self) -> str | None:
        """Trace of the span concerned, 32 hex digits; None if there is none."""
        found = self.decision.trace_id if self.decision else 0
        return f"{found:032x}" if found else None

    @property
    def decision_id(self) -> str | None:
        """Id of the decision behind it, 16 hex digits."""
        return self.decision.id if self.decision else None

    def row(self) -> dict[str, Any]:
        """Returns it as a JSON object; times in nanoseconds since the epoch, null for unknown."""
        made: dict[str, object] = {
            "detection": None if self.decision is None else _detection(self.decision),
            "actions": [act_row(act) for act in self.acts],
            "suggestions": [
                {"answer": one.answer.value, "text": one.text} for one in self.suggestions
            ],
            "context": asdict(self.context) if self.context and self.shows_content else None,
            "state": None if self.report is None else totals(self.report),
        }
        return {name: made[name] if name in made else getattr(self, name) for name in _ROW}


_ROW: Final = (
    "id", "session", "cause", "reason", "question", "at", "until", "fallback", "held",
    "decision_id", "trace_id", "detection", "agent", "task", "actions", "suggestions", "context",
    "state", "process",
)  # fmt: skip
"""Names of an escalation's row, in their order."""


def totals(report: Report) -> dict[str, object]:
    """The figures of a report, without its lists; times in seconds, what is unknown null."""
    severity = report.highest_severity
    return {
        "action": report.action.value,
        "steps": report.steps,
        "actions": report.actions,
        "failures": report.failures,
        "model_calls": report.model_calls,
        "tokens": report.tokens,
        "changes": report.changes,
        "milestones": report.milestones,
        "loops_detected": report.loops_detected,
        "loops_prevented": report.loops_prevented,
        "alerts": report.alert_count,
        "alerts_by_type": dict(report.alerts_by_type),
        "highest_severity": None if severity is None else severity.value,
        "duration_s": report.duration_s,
        "tools": {tool.name: tool.calls for tool in report.tools[:_TOOLS]},
    }


def _detection(decision: Decision) -> Mapping[str, object]:
    return {
        "action": decision.action.value,
        "detector": decision.detector,
        "rule": decision.reason,
        "severity": decision.severity.value,
        "confidence": decision.confidence,
        "count": decision.count,
        "threshold": decision.threshold,
        "tool": decision.tool or None,
        "step": decision.step,
        "loop": decision.loop,
        "cause": None if decision.diagnosis is None else decision.diagnosis.cause,
    }
