"""What the guard publishes about a step once its lock is released."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard._util.errors import attempt_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision, Detection, Evidence, Step
    from otel_loopguard.core.progress import Phase
    from otel_loopguard.core.report import Meaning, Spent, Turn
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.session import Session


class DecisionRecord(NamedTuple):
    """A decision, and what was true of its session when it was made.

    Attributes:
        session: The session that it is about.
        decision: The decision.
        step: The step that led to it.
        opened: The open span of that step; None without one.
        agent: Name of the agent concerned, if it is known.
        meaning: What it is the first of in its session.
        spent: What the session had spent by then.
        running: Whether the step still runs, and takes too long.
    """

    session: Session
    decision: Decision
    step: Step
    opened: ActiveSpan | None
    agent: str | None
    meaning: Meaning
    spent: Spent
    running: bool = False


class Observation(NamedTuple):
    """A step that was judged; nothing else leaves the lock of the guard.

    Attributes:
        session: The session that the step belongs to.
        number: Number of the step in its session, from 0.
        step: The step.
        evidence: What was made of a finished tool call; None for other steps.
        detections: What the detectors found in it.
        decisions: What was decided, in that order.
        turn: What the newest tool call changed: a recovery, a switch of tools.
        phases: Phases of the run that are over by this step.
        compacted: Whether it showed that the context of the model was compacted.
    """

    session: Session
    number: int
    step: Step
    evidence: Evidence | None
    detections: tuple[Detection, ...]
    decisions: tuple[DecisionRecord, ...]
    turn: Turn
    phases: tuple[Phase, ...]
    compacted: bool


class Subscribers:
    """Who is notified of steps and decisions: in this order, and while no lock is held.

    One that raises does not keep the others from it: the fault is counted under its name. What is
    not configured is not in the lists.

    Attributes:
        steps: Called with every observation.
        decisions: Called with every decision.
    """

    def __init__(self, faults: InternalErrors) -> None:
        self._faults = faults
        self.steps: list[tuple[str, Callable[[Observation], object]]] = []
        self.decisions: list[tuple[str, Callable[[DecisionRecord], object]]] = []

    def publish(self, record: DecisionRecord) -> None:
        """Notifies everybody of one decision."""
        attempt_each(self._faults, self.decisions, record)
