"""What people may do about a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core.escalation import Answer, Suggestion

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

_SUGGESTED: Final = 3


def suggestions(decision: Decision | None) -> tuple[Suggestion, ...]:
    """What people may do about a decision, the most to the point first."""
    found: list[Suggestion] = []
    if decision is not None and decision.diagnosis is not None:
        found += (
            Suggestion(Answer.CONTINUE, f"after this: {fix.text} (risk: {fix.risk})")
            for fix in decision.diagnosis.fixes[:_SUGGESTED]
        )
    ways = () if decision is None else decision.alternatives
    found += (Suggestion(Answer.MODIFY_PLAN, way) for way in ways[:_SUGGESTED])
    if not ways:
        other = "go on in another way: say which, or give the tasks that are to be done instead"
        found.append(Suggestion(Answer.MODIFY_PLAN, other))
    return (
        *found,
        Suggestion(Answer.SKIP_TASK, "leave this task out and go on with the next one"),
        Suggestion(Answer.CONTINUE, "go on as before, with a word of yours to the model"),
        Suggestion(Answer.ABORT, "end the run"),
    )
