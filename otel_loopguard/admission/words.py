"""What is to be heard about calls that are about to run, and in which order.

Source: FEATURES A9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Choice, Decision, FollowUp, Kind, Objection, Source, Step
from otel_loopguard.policy import certainty_of, execution_follow_ups, follow_ups_of, place_of

if TYPE_CHECKING:
    from otel_loopguard.planning import Task
    from otel_loopguard.sessions import Session


class Word(NamedTuple):
    """One thing that is to be heard about calls.

    Attributes:
        source: What it comes from.
        choice: What follows.
        confidence: How sure, 0 to 1.
        reason: Why, in a sentence.
        follow_ups: What a runtime does next, in this order.
        decision: The decision about a loop behind it.
        objection: Short code of what else is behind it.
    """

    source: Source
    choice: Choice
    confidence: float
    reason: str
    follow_ups: tuple[FollowUp, ...]
    decision: Decision | None = None
    objection: str | None = None


def place(word: Word) -> tuple[bool, int]:
    """A refusal goes before everything; else the order of sources."""
    return word.choice is not Choice.DENY, place_of(word.source)


def objecting(said: Objection) -> Word:
    """What a breaker or a check says: heard as a loop of the tool is."""
    follows = said.follow_ups or execution_follow_ups(said.choice)
    return Word(
        Source.TOOL_LOOP, said.choice, said.confidence, said.message, follows, None, said.reason
    )


_CHOICES: Final[Mapping[Action, Choice]] = {
    Action.ASK: Choice.PROMPT_USER,
    Action.DENY: Choice.DENY,
    Action.PAUSE: Choice.DEFER,
    Action.ABORT: Choice.DENY,
}


def against(session: Session, tasks: Sequence[Task], agent: str | None) -> Word | None:
    """What the flag of a session says about calls; None where it is about others."""
    control = session.flag.control
    choice, decision = _CHOICES.get(control.action), control.decision
    if choice is None:
        return None
    if control.action in (Action.DENY, Action.ASK) and decision is not None:
        with session.lock:
            if not any(_concerns(session, decision, task, agent) for task in tasks):
                return None
    reason = control.reason or f"the session is at {control.action}"
    if decision is None:  # a person set it
        return Word(Source.GRAPH_LOOP, choice, 1.0, reason, follow_ups_of(control.action, None))
    sure = certainty_of(decision.source, decision.action, decision.confidence)
    return Word(decision.source, choice, sure, reason, decision.follow_ups, decision)


def _concerns(session: Session, decision: Decision, task: Task, agent: str | None) -> bool:
    """Whether a call belongs to a loop that is denied, or asked about.

    A loop of nodes or of agents has no calls: it is every call that its user is asked about, and
    the hand-offs to its agents that are denied.
    """
    if decision.source is Source.GRAPH_LOOP:
        asks = decision.action is Action.ASK
        return asks or session.denies(task.tool or "", task.args, task.agent or agent)
    call = session.call_of(Step(Kind.TOOL, task.tool, agent=task.agent or agent, args=task.args))
    if call is None:  # its arguments are not known
        return task.tool == decision.tool
    policy = session.policy
    return policy.denies(call) if decision.action is Action.DENY else policy.knows(call)
