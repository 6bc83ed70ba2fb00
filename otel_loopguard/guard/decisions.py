"""Applies a decision, and notifies everybody of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._control.callbacks import tell_listeners
from otel_loopguard._util.errors import swallow
from otel_loopguard.core import Action
from otel_loopguard.policy.hints import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.escalation.service import EscalationService
    from otel_loopguard.execution.admission import Admissions
    from otel_loopguard.sessions import Finding, Session, SessionRegistry
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.decisions import Decisions
    from otel_loopguard.sessions.stats import DecisionIndex
    from otel_loopguard.sessions.watchdog import Stall
    from otel_loopguard.telemetry import Telemetry
    from otel_loopguard.telemetry.recorder import MetricsRecorder
    from otel_loopguard.telemetry.span_annotator import SpanAnnotator


class DecisionApplier:
    """Turns findings into decisions, and has them take effect. The guard's lock is held."""

    def __init__(
        self,
        decisions: Decisions,
        ledger: DecisionIndex,
        sessions: SessionRegistry,
        numbers: MetricsRecorder | None = None,
    ) -> None:
        self._decisions = decisions
        self._ledger = ledger
        self._sessions = sessions
        self._numbers = numbers

    def found(
        self, session: Session, step: Step, finding: Finding, *, index: int, time: int
    ) -> Decision:
        """What follows from a step."""
        decision = self._decisions.decide(session.key, finding, step, index=index, time=time)
        _raise_flag(session, decision)
        loop = finding.verdict.detection.own is None
        self._enter(session, decision, step, agent=step.agent, loop=loop)
        return decision

    def stalled(self, session: Session, stall: Stall) -> list[Decision]:
        """What follows from something that runs for too long."""
        decisions: list[Decision] = []
        agent = stall.step.agent or stall.opened.agent
        if self._numbers is not None:
            self._numbers.stalled(stall.detection.detector, agent)
        for finding in session.stalled(stall.detection, stall.step):
            index = session.progress.steps
            decision = self._decisions.decide(
                session.key, finding, stall.step, index=index, time=stall.time
            )
            decisions.append(decision)
            if decision.action.stops or not session.flag.raised:
                _raise_flag(session, decision)
            self._enter(session, decision, None, agent=agent, loop=False)
        session.ruled()
        return decisions

    def _enter(
        self,
        session: Session,
        decision: Decision,
        step: Step | None,
        *,
        agent: str | None,
        loop: bool,
    ) -> None:
        """Writes a decision down for the report, the metrics and the journal."""
        meaning = session.record.decided(decision, step, loop=loop)
        if self._numbers is not None:
            self._numbers.ruled(session, decision, agent, meaning)
        session.decided(decision)
        self._sessions.wrote(session, now=decision.action is not Action.ALLOW)
        if decision.action is not Action.ALLOW:
            self._ledger.enter(decision.id, session.record)


def _raise_flag(session: Session, decision: Decision) -> None:
    flag = session.flag
    # A hint for one loop does not take down the deny of another.
    # What is only noted on the trace does not touch it.
    noted = decision.shadow or decision.action is Action.ALLOW
    if not noted and decision.action.rank >= flag.control.action.rank:
        said = hint(decision) + session.record.offer(decision.action)
        flag.set(decision.action, reason=decision.message, hint=said, decision=decision)


class DecisionNotifier:
    """Tells of the decisions of one guard. No lock is held, and nobody who listens can fail it.

    Attributes:
        listener: As given.
    """

    def __init__(  # noqa: PLR0913
        self, marks: SpanAnnotator, people: EscalationService | None, telemetry: Telemetry,
        admissions: Admissions, *,
        faults: InternalErrors, listener: Callable[[Session, Decision], None] | None,
    ) -> None:  # fmt: skip
        self._marks = marks
        self._people = people
        self._telemetry = telemetry
        self._admissions = admissions
        self._faults = faults
        self.listener = listener

    def ended(
        self, session: Session, step: Step, decisions: Sequence[Decision], opened: ActiveSpan | None
    ) -> None:
        """Tells of what a step led to."""
        for decision in decisions:
            # A mere note on a step without a span would wait for an exporter for ever.
            if opened is not None or decision.action is not Action.ALLOW:
                self._marks.keep(decision, with_session=step.session is None, opened=opened)
            self._tell(session, decision, opened, step.agent)
        with swallow(self._faults, "log"):
            for news in session.cycles.tell(session.key):
                self._telemetry.cycled(session.key, news, opened)

    def running(
        self, session: Session, decisions: Sequence[Decision], opened: ActiveSpan, agent: str | None
    ) -> None:
        """Tells of what is decided about a span that is still open."""
        for decision in decisions:
            with swallow(self._faults, "mark"):
                self._marks.running(opened.view, decision)
            self._tell(session, decision, opened, agent or opened.agent)

    def _tell(
        self, session: Session, decision: Decision, opened: ActiveSpan | None, agent: str | None
    ) -> None:
        if opened is not None:
            with swallow(self._faults, "mark"):
                self._marks.above(opened, decision)
        if self.listener is not None:
            with swallow(self._faults, "on_decision"):
                self.listener(session, decision)
        tell_listeners(decision, self._faults)
        if self._people is not None:
            self._people.decided(session, decision)
        self._telemetry.voice.decided(decision, opened, agent, self._admissions.fields)
