"""The event that the guard publishes about a step once its lock is released."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_loopguard.core import Decision, Detection, Kind, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.evidence import Evidence
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


Listener = tuple[str, "Callable[[Any], object]"]
"""A listener, and the name that its faults are counted under."""
_MOST: Final = 10_000
"""Notices that wait for a listener that does not return; the oldest go."""


class Subscribers:
    """Listeners to steps and decisions, called in order, one notice at a time.

    A listener that raises does not stop the others: the fault is counted under its name. Parts that
    are not configured are not in the lists.

    Attributes:
        steps: Called with each observation, on whichever thread had it judged. No lock is held.
        decisions: Called with each decision.
        cycles: Called with each line about agents' cycles.
        own: Called with each observation before anybody may ask again, as answers depend on them.
        marks: The same for decisions.
    """

    def __init__(self, faults: InternalErrors) -> None:
        self._faults = faults
        self.steps: list[Listener] = []
        self.decisions: list[Listener] = []
        self.cycles: list[Listener] = []
        self.own: list[Listener] = []
        self.marks: list[Listener] = []
        self._waiting: deque[tuple[list[Listener], object]] = deque()
        # Not of `new_lock`: a listener that asks must find no lock of ours held.
        self._publishing: Any = threading.RLock()
        self.decided = False

    def add(self, seen: Observation) -> None:
        """Notes an observation with its decisions for `publish`, and has our own parts learn."""
        self._call(self.own, seen)
        if self.steps:
            self.note(self.steps, seen)
        for record in seen.decisions:
            self.add_decision(record)

    def add_decision(self, record: DecisionRecord) -> None:
        """Notes a decision, and marks the spans that it is about."""
        self._call(self.marks, record)
        self.note(self.decisions, record)
        self.decided = True

    def publish(self, wait_s: float = 0) -> None:
        """Calls the listeners of all that was noted, unless another thread is at it.

        Args:
            wait_s: How long to wait for that thread, at most.
        """
        waiting, lock = self._waiting, self._publishing
        if lock._is_owned():  # noqa: SLF001  # a listener asks: those after it are called later
            return
        while waiting or wait_s:
            # Taken within: an interrupt right behind it would leave it held, and listeners deaf.
            try:
                if not lock.acquire(timeout=wait_s):
                    return  # the other thread looks once more after it has let go
                self.decided = False
                while waiting:
                    listeners, notice = waiting.popleft()
                    self._call(listeners, notice)
            finally:
                try:  # noqa: SIM105  # an interrupt may come behind any other call
                    lock.release()
                except RuntimeError:  # another thread has it
                    pass
            wait_s = 0

    def note(self, listeners: list[Listener], notice: object) -> None:
        """Notes what some are to be called with."""
        if len(self._waiting) >= _MOST:
            self._waiting.popleft()
            self._faults.note("listeners", OverflowError("a listener is too slow"))
        self._waiting.append((listeners, notice))

    def _call(self, listeners: list[Listener], notice: object) -> None:
        for name, notify in listeners:
            try:
                notify(notice)
            except Exception as fault:  # noqa: BLE001, PERF203
                self._faults.caught(name, fault)
