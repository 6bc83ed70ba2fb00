"""What a decision changes: the flag of its session, its report, its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Action
from otel_loopguard.hints import hint

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.decisions import Decisions
    from otel_loopguard.reports import Ledger
    from otel_loopguard.sessions import Finding, Session, Sessions
    from otel_loopguard.stalls import Stall
    from otel_loopguard.telemetry.numbers import Numbers


class Rulings:
    """Turns findings into decisions, and has them take effect. The guard's lock is held.

    Args:
        decisions: Makes decisions out of findings.
        ledger: Knows later who was told what.
        sessions: Hands on what goes to journals.
        numbers: Counts decisions for metrics; None: nobody does.
    """

    def __init__(
        self,
        decisions: Decisions,
        ledger: Ledger,
        sessions: Sessions,
        numbers: Numbers | None = None,
    ) -> None:
        self._decisions = decisions
        self._ledger = ledger
        self._sessions = sessions
        self._numbers = numbers

    def found(
        self, session: Session, step: Step, finding: Finding, *, index: int, time: int
    ) -> Decision:
        """What follows from a step.

        Args:
            session: Its session.
            step: The step.
            finding: What the policy says about it.
            index: Index of the step within the session.
            time: When, nanoseconds since the epoch.
        """
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
