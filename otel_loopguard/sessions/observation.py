"""What the guard publishes about a step once its lock is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util.errors import attempt_each
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision, Detection, Evidence, Step
    from otel_loopguard.core.progress import Phase
    from otel_loopguard.core.report import Meaning, Spent, Turn
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.session import Session


def agent_of(step: Step, opened: ActiveSpan | None = None) -> str | None:
    """The agent of a step: a run's own, else the one it names, else of the nearest run above."""
    named = step.agent or (step.name if step.kind is Kind.AGENT else None)
    return named if named or opened is None else opened.agent


class DecisionRecord(NamedTuple):
    """A decision, and what was true of its session when it was made."""

    session: Session
    decision: Decision
    step: Step
    opened: ActiveSpan | None  # the open span of that step
    agent: str | None
    meaning: Meaning
    spent: Spent
    running: bool = False  # whether the step still runs, and takes too long


class Observation(NamedTuple):
    """A step that was judged; nothing else leaves the lock of the guard."""

    session: Session
    number: int  # of the step in its session, from 0
    step: Step
    evidence: Evidence | None  # of a finished tool call
    detections: tuple[Detection, ...]
    decisions: tuple[DecisionRecord, ...]
    turn: Turn  # what the newest tool call changed
    phases: tuple[Phase, ...]  # those that are over by this step
    compacted: bool  # whether it showed that the context of the model was compacted
    agent: str | None = None


class Subscribers:
    """The subscribers to steps and decisions, called in order and without locks.

    One that raises does not keep the others from it: the fault is counted under its name. What is
    not configured is not in the lists.
    """

    def __init__(self, faults: InternalErrors) -> None:
        self._faults = faults
        self.steps: list[tuple[str, Callable[[Observation], object]]] = []
        self.decisions: list[tuple[str, Callable[[DecisionRecord], object]]] = []

    def publish(self, record: DecisionRecord) -> None:
        """Notifies everybody of one decision."""
        attempt_each(self._faults, self.decisions, record)
