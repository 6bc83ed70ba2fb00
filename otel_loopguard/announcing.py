"""Who is told of a decision once it was made: spans, people, telemetry, the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.control import tell_listeners
from otel_loopguard.core import Action
from otel_loopguard.faults import swallow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_loopguard.admission.admissions import Admissions
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.faults import Faults
    from otel_loopguard.marks import Marks
    from otel_loopguard.opens import Open
    from otel_loopguard.people import People
    from otel_loopguard.sessions import Session
    from otel_loopguard.telemetry import Telemetry


class Announcer:
    """Tells of the decisions of one guard. No lock is held, and nobody who listens can fail it.

    Args:
        marks: Writes on spans.
        people: What people meet; None in a replay.
        telemetry: Metrics and log events.
        admissions: Knows what a decision says about its call.
        faults: Where faults are counted.
        listener: Called with session and decision; None for nobody.

    Attributes:
        listener: As given.
    """

    def __init__(  # noqa: PLR0913
        self, marks: Marks, people: People | None, telemetry: Telemetry, admissions: Admissions, *,
        faults: Faults, listener: Callable[[Session, Decision], None] | None,
    ) -> None:  # fmt: skip
        self._marks = marks
        self._people = people
        self._telemetry = telemetry
        self._admissions = admissions
        self._faults = faults
        self.listener = listener

    def ended(
        self, session: Session, step: Step, decisions: Sequence[Decision], opened: Open | None
    ) -> None:
        """Tells of what a step led to.

        Args:
            session: Its session.
            step: The step.
            decisions: What was decided, the strongest last: it is what the ended span keeps.
            opened: Its span; None if its start was not shown.
        """
        for decision in decisions:
            # A mere note on a step without a span would wait for an exporter for ever.
            if opened is not None or decision.action is not Action.ALLOW:
                self._marks.keep(decision, with_session=step.session is None, opened=opened)
            self._tell(session, decision, opened, step.agent)
        with swallow(self._faults, "log"):
            for news in session.cycles.tell(session.key):
                self._telemetry.cycled(session.key, news, opened)

    def running(
        self, session: Session, decisions: Sequence[Decision], opened: Open, agent: str | None
    ) -> None:
        """Tells of what is decided about a span that is still open.

        Args:
            session: Its session.
            decisions: What was decided.
            opened: The span.
            agent: Name of the agent whose it is, if that is known.
        """
        for decision in decisions:
            with swallow(self._faults, "mark"):
                self._marks.running(opened.view, decision)
            self._tell(session, decision, opened, agent or opened.agent)

    def _tell(
        self, session: Session, decision: Decision, opened: Open | None, agent: str | None
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
