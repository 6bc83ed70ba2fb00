"""Callbacks for decisions and escalations; escalation of a session to people, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from otel_loopguard._control.context import BACKENDS, DECISIONS, ESCALATIONS, known_session
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.errors import warn_blind
from otel_loopguard.errors import EscalationError

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.core.report import Escalation
    from otel_loopguard.core.task import Task


def on_decision(
    callback: Callable[[Decision], object], *, session: str | None = None
) -> Callable[[], None]:
    """Calls a callback with every decision of every guard in this process.

    It runs on a thread of its own, one decision after the other, and delays nothing else. What it
    raises is logged and counted. At most 1000 decisions wait for it; beyond that the oldest are
    dropped and counted.

    ::

        stop_listening = control.on_decision(lambda decision: page_somebody(decision.message))

    Args:
        callback: Called with a `Decision`.
        session: Key of a session; all by default.

    Returns:
        A function that removes the callback.
    """
    return DECISIONS.add(callback, session)


def escalate(reason: str, *, session: str | None = None, hold: bool = True) -> str | None:
    """Asks people about a session, by log and by the webhook, callbacks and store that are set up.

    ::

        control.escalate("the refund is above 1,000 EUR")
        control.gate()  # waits for the answer

    Args:
        reason: Why, in a sentence for people. It is sent to all channels: no secrets.
        session: Key of the session; the one of the current context by default.
        hold: True to pause it until it is answered, or `pause_limit_s` is over.

    Returns:
        Id of the escalation; None if the session is not known here: then nothing changes, and a
        warning says so.

    Raises:
        ValueError: The reason is empty or not a string.
    """
    if not isinstance(reason, str) or not reason.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"reason of an escalation must be a non-empty string, got {reason!r:.100}")
    found = known_session(session)
    if found is None:
        warn_blind("escalated_nowhere")
        return None
    return found.escalate(reason.strip(), hold=hold)


def answer(  # noqa: PLR0913
    escalation_id: str,
    answer: str,
    guidance: str | None = None,
    *,
    by: str | None = None,
    plan: object = None,
    limit: float | None = None,
) -> None:
    """Answers an escalation.

    ::

        control.answer(found.id, "modify_plan", plan=[{"id": "look_up"}, {"id": "refund"}])

    Args:
        escalation_id: Its id, `Escalation.id`.
        answer: `continue`, `abort`, `modify_plan` or `skip_task`.
        guidance: What the model is told next, as its hint; of longer text 2,000 characters.
        by: Name of the person.
        plan: With `modify_plan`: the tasks to be done from now on, as `plans.read` takes them, 1
            to 1000. They take the place of the plan before; what was done under the same id stays
            done. The model is told them, and `control.plan()` gives them to the runtime.
        limit: With `continue`, where a budget is spent: its new limit, above what was spent.
            Without one the budget says nothing more in this session.

    Raises:
        PlanError: The plan is not sound; the error has everything that is wrong with it. Nothing
            was changed, and the escalation can be answered again.
        EscalationError: There is no such answer; the escalation is not known here, was answered
            already, or its time is over. Nothing was changed.
    """
    settle_all()
    said = {"answer": answer, "guidance": guidance, "by": by, "plan": plan, "limit": limit}
    # Each backend knows its own only: the first that does takes it, or says why not.
    if not any(backend.answer(escalation_id, said) for backend in BACKENDS):
        raise EscalationError(f"there is no escalation {escalation_id!r:.100} here")


def plan(session: str | None = None) -> tuple[Task, ...]:
    """The tasks that a person gave in place of the plan of a session.

    Args:
        session: Key of the session; the one of the current context by default.

    Returns:
        The tasks, in their order; empty where nobody changed the plan.
    """
    found = known_session(session)
    return () if found is None else found.flag.plan


def escalations() -> list[Escalation]:
    """Escalations that wait for an answer in this process, oldest first."""
    settle_all()
    return [found for backend in BACKENDS for found in backend.open_escalations()]


def on_escalation(callback: Callable[[Escalation], object]) -> Callable[[], None]:
    """Calls a callback with every escalation of every guard in this process.

    It is called on a thread of its own, one escalation after the other. What it gives back may be
    the answer: its name, or a map with `answer`, and perhaps `guidance`, `by`, `plan` and `limit`.
    What it raises is logged and counted; where it hangs, nobody waits for it.

    Args:
        callback: Called with an `Escalation`; `escalation.message(found)` is it as text.

    Returns:
        A function that ends it.
    """
    return ESCALATIONS.add(callback, None)
