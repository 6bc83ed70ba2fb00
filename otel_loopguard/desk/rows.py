"""A session as people see it in a list; without content of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.core.escalation import totals
from otel_loopguard.escalation import Case, case_row
from otel_loopguard.reports import act_row

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session

_LONGEST: Final = 200


def session_row(session: Session, process: str, case: Case | None) -> dict[str, Any]:
    """A session as one JSON object; times in nanoseconds since the epoch. Its lock is held.

    Args:
        session: The session.
        process: Name of its process.
        case: Its newest escalation, if it has one.
    """
    report, control = session.report(), session.flag.control
    recent = session.record.recent
    waits = case is not None and case.reply is None
    return {
        "session": session.key,
        "process": process,
        "agent": _cut(recent.agent),
        "step": _cut(recent.step),
        "steps": report.steps,
        "action": control.action.value,
        "by": _cut(control.by),
        "reason": _cut(control.reason),
        "detector": report.alerts[-1].detector if report.alerts else None,
        "tokens": report.tokens,
        "since": session.last_used - round((report.duration_s or 0) * 1e9),
        "last": session.last_used,
        "escalation": case.escalation.id if case is not None and waits else None,
    }


def session_view(session: Session, process: str, case: Case | None) -> dict[str, Any]:
    """All that there is to show of a session. Its lock is held."""
    report = session.report()
    return {
        **session_row(session, process, case),
        "totals": totals(report),
        "actions": [act_row(act) for act in session.record.recent.acts()],
        "decisions": [_decision(decision) for decision in report.alerts],
        "package": None if case is None else case_row(case),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "step": decision.step,
        "at": decision.time or None,
        "action": decision.action.value,
        "detector": decision.detector,
        "rule": decision.reason,
        "message": decision.message,
    }


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST]
