"""Tells of decisions, escalations and cycles: one line in the log, one log event.

Source: FEATURES A11, B8, O3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from otel_loopguard.core import Action
from otel_loopguard.faults import swallow
from otel_loopguard.live import LiveSpan
from otel_loopguard.logger import logger
from otel_loopguard.marks import is_written
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.places import place_of

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.faults import Faults
    from otel_loopguard.opens import Open
    from otel_loopguard.sessions import CycleNews
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.events import Case
    from otel_loopguard.telemetry.herald import Herald


class Voice:
    """Tells of what one guard decides. Nothing here waits or raises.

    Args:
        settings: Settings of the guard.
        faults: Its faults.
        herald: Emits events; None where nobody is told but the log.
        live: Whether its steps happen now; a replay makes no spans.

    Attributes:
        answering: Whether somebody else tells of what is put before people (`escalated`).
    """

    def __init__(
        self, settings: Settings, faults: Faults, herald: Herald | None, *, live: bool
    ) -> None:
        self._faults = faults
        self._herald = herald
        self._events = settings.telemetry_events
        self._spans = settings.decision_spans and live
        self.answering = False

    def decided(
        self,
        decision: Decision,
        opened: Open | None,
        agent: str | None,
        fields: Callable[[Decision], Mapping[str, events.Value]],
    ) -> None:
        """Tells of a decision.

        Args:
            decision: The decision.
            opened: The span concerned; None if its start was not seen.
            agent: Name of the agent concerned, if it is known.
            fields: What a record says beside its text.
        """
        with swallow(self._faults, "log"):
            said = fields(decision)
            level = logging.WARNING if decision.action.stops else logging.INFO
            told = "%s: session %s: %s", decision.action, decision.session, _told(decision)
            logger.log(level, *told, extra=said)
            self._emit(decision, opened, agent, said)

    def escalated(self, case: Case) -> None:
        """Tells of what is put before people, when it is made and when it is over."""
        with swallow(self._faults, "telemetry.escalated"):
            if self._herald is not None and self._events:
                self._herald.tell(events.escalated(case))

    def cycled(self, session: str, news: CycleNews, opened: Open | None) -> None:
        """Tells of a cycle of agents.

        Args:
            session: Key of its session.
            news: What there is to say.
            opened: The span that ended; None if its start was not seen.
        """
        if self._herald is not None and self._events:
            view = None if opened is None else opened.view
            ids = (0, 0) if view is None else (view.trace_id, view.span_id)
            self._herald.tell(events.cycle(session, news, place_of(*ids, opened)))

    def _emit(
        self,
        decision: Decision,
        opened: Open | None,
        agent: str | None,
        said: Mapping[str, events.Value],
    ) -> None:
        herald = self._herald
        if herald is None:
            return
        place = place_of(decision.trace_id, decision.span_id, opened)
        span = self._spans and self._is_nowhere(decision, opened)
        if span or self._events:
            herald.tell(events.decided(decision, agent, said, place, span=span))
        if self._events and not self.answering and _asks(decision):
            herald.tell(events.asked(decision, agent, place))

    def _is_nowhere(self, decision: Decision, opened: Open | None) -> bool:
        """Whether no span has it: nothing is open above, and no exporter of ours writes it."""
        if decision.action is Action.ALLOW or not decision.span_id or is_written(self._faults):
            return False
        if opened is None:
            return True
        return opened.ended and not any(isinstance(each.view, LiveSpan) for each in opened.above())


def _told(decision: Decision) -> str:
    """What the log says; of a pause also how to end it."""
    if decision.action is not Action.PAUSE or decision.shadow:
        return decision.message
    return (
        f"{decision.message}; it waits for an answer: `otel-loopguard resume {decision.session}` "
        f"(or `abort`), or control.resume({decision.session!r})"
    )


def _asks(decision: Decision) -> bool:
    asks = decision.action in (Action.ASK, Action.PAUSE)
    return asks or decision.intervention == "escalate_human"
