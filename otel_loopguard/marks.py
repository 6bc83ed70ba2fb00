"""What decisions write on spans: open ones at once, ended ones on their way to an exporter."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard.core import Action, Kind
from otel_loopguard.decisions import annotation
from otel_loopguard.live import LiveSpan

if TYPE_CHECKING:
    from otel_loopguard.core import Annotation, Decision, Step
    from otel_loopguard.dialects import Reader, SpanView
    from otel_loopguard.opens import Open
    from otel_loopguard.sessions import Session

_KEPT: Final = 4096


class Marks:
    """Writes the decisions of one guard on spans. Thread-safe.

    Args:
        reader: Tells which span is an agent's.
        events: Whether open spans get a span event too.
    """

    def __init__(self, reader: Reader, *, events: bool) -> None:
        self._reader = reader
        self._events = events
        self._lock = threading.RLock()
        self._ended: OrderedDict[tuple[int, int], Annotation] = OrderedDict()

    def keep(self, decision: Decision, *, with_session: bool) -> None:
        """Keeps what an ended span gets, until an exporter takes it; the newest 4096."""
        if not decision.span_id:
            return
        with self._lock:
            place = (decision.trace_id, decision.span_id)
            self._ended[place] = annotation(decision, with_session=with_session)
            if len(self._ended) > _KEPT:
                self._ended.popitem(last=False)

    def take(self, trace_id: int, span_id: int) -> Annotation | None:
        """What an ended span gets; given once."""
        return self._ended.pop((trace_id, span_id), None) if self._ended else None

    def above(self, opened: Open, decision: Decision) -> None:
        """Annotates the open agent span above, and the topmost open span.

        An abort ends the agent, and turns its span to ERROR; a deny does not. What is only noted
        takes no other decision's place.
        """
        above = [place.view for place in opened.above() if isinstance(place.view, LiveSpan)]
        if not above:
            return
        steps = [(view, self._reader.read(view)) for view in above]
        agents = [found for found in steps if found[1] is not None and found[1].kind is Kind.AGENT]
        agent, step = agents[0] if agents else steps[-1]
        aborts = decision.action is Action.ABORT
        own = annotation(decision, with_session=_lacks_session(step), status=aborts)
        noted = decision.action is Action.ALLOW
        if noted and _is_marked(agent):
            if self._events:
                agent.tell(own)
        else:
            agent.annotate(own, event=self._events)
        top, step = steps[-1]
        if top is not agent and not (noted and _is_marked(top)):
            outer = annotation(decision, with_session=_lacks_session(step), status=False)
            top.annotate(outer, event=False)

    def running(self, span: SpanView, decision: Decision) -> None:
        """Annotates what is open, and has not failed by that; as `above`, a mere note yields."""
        if isinstance(span, LiveSpan):
            without = _lacks_session(self._reader.read(span))
            added = annotation(decision, with_session=without, status=False)
            if decision.action is not Action.ALLOW or _is_noted(span):
                span.annotate(added, event=self._events)
            elif self._events:
                span.tell(added)

    def starting(self, opened: Open, session: Session) -> None:
        """Annotates a call that starts although its loop is denied or its session aborted."""
        decision, span = session.flag.control.decision, opened.view
        if decision is None or not isinstance(span, LiveSpan):
            return
        step = self._reader.read(span)
        if step is None or step.kind is not Kind.TOOL:
            return
        step.agent = step.agent or opened.agent
        with session.lock:
            call = session.call_of(step)
            mine = decision.action is Action.ABORT or call is None or session.policy.denies(call)
        if mine:
            added = annotation(decision, with_session=step.session is None, status=False)
            span.annotate(added, event=False)


def _is_noted(span: LiveSpan) -> bool:
    return span.attributes.get(semconv.DECISION_ACTION, "allow") == "allow"


def _is_marked(span: LiveSpan) -> bool:
    return semconv.DECISION_ACTION in span.attributes


def _lacks_session(step: Step | None) -> bool:
    return step is None or step.session is None
