"""Writes decisions on spans: open ones at once, ended ones on their way to an exporter."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.core.decision import Annotation
from otel_loopguard.evidence import prepare
from otel_loopguard.sessions.decisions import annotation
from otel_loopguard.spans.sdk_views import ActiveSpanView
from otel_loopguard.telemetry.events import AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from otel_loopguard._control.flag import Control
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.active import ActiveSpan
    from otel_loopguard.sessions.observation import DecisionRecord
    from otel_loopguard.spans.reader import Reader

# Twice the queue of the SDK's batch processor, whose every span may have a decision; 1 kB each.
_MOST_KEPT: Final = 4096

writers: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()
"""The exporters that write decisions on ended spans, each with the faults of its guard; None: of
all guards."""


def is_written(faults: InternalErrors) -> bool:
    """True if an exporter of this process writes the decisions of the guard with these faults."""
    return any(of is None or of is faults for of in list(writers.values()))


class SpanAnnotator:
    """Writes the decisions of one guard on spans. Thread-safe.

    Attributes:
        capacity: Decisions that may wait for an exporter.
        dropped: Decisions that gave way to newer ones.
    """

    def __init__(
        self, reader: Reader, faults: InternalErrors, *, events: bool, verdicts: bool = False
    ) -> None:
        self._reader = reader
        self._faults = faults
        self._events = events
        self._verdicts: ModuleType | None = None
        if verdicts:
            from otel_loopguard.telemetry import verdicts as module  # noqa: PLC0415  # if asked for

            self._verdicts = module
        self._lock = new_lock()
        self._ended: OrderedDict[tuple[int, int], Annotation] = OrderedDict()
        self.capacity = _MOST_KEPT
        self.dropped = 0

    @property
    def written(self) -> bool:
        """True if there is an exporter that decisions wait for."""
        return is_written(self._faults)

    @property
    def waiting(self) -> int:
        """Decisions that wait for an exporter."""
        return len(self._ended)

    def on_decision(self, made: DecisionRecord) -> None:
        """Annotates an open span; keeps the annotation of an ended one for an exporter."""
        decision = made.decision
        view = None if made.opened is None else made.opened.view
        if made.running:
            if isinstance(view, ActiveSpanView):
                self._running(view, made)
            return
        # A note on a step without a span would wait for an exporter for ever.
        if made.opened is None and decision.action is Action.ALLOW:
            return
        if not decision.span_id or (isinstance(view, ActiveSpanView) and not view.sampled):
            return
        found = self._judged(made, with_session=made.step.session is None)
        self._keep(decision.trace_id, decision.span_id, found)

    def _keep(self, trace_id: int, span_id: int, found: Annotation) -> None:
        """Keeps the annotation of an ended span until an exporter takes it."""
        with self._lock:
            place = (trace_id, span_id)
            before = self._ended.get(place)
            if before is not None:
                found = Annotation(
                    {**before.attributes, **found.attributes}, found.error or before.error,
                    found.links or before.links,
                )  # fmt: skip
            self._ended[place] = found
            if len(self._ended) > self.capacity:
                self._ended.popitem(last=False)
                # Without such an exporter nothing is lost.
                self.dropped += self.written

    def _annotate(self, span: ActiveSpanView, found: Annotation, *, event: bool = False) -> None:
        """Annotates a span above; one that ended before this was judged, by its exporter."""
        if not span.annotate(found, event=event) and span.sampled:
            # Never a link to its own descendants: Jaeger would draw nothing of the trace.
            self._keep(span.trace_id, span.span_id, Annotation(found.attributes, found.error))

    def pop(self, trace_id: int, span_id: int) -> Annotation | None:
        """The annotation of an ended span, once."""
        return self._ended.pop((trace_id, span_id), None) if self._ended else None

    def _judged(
        self, made: DecisionRecord, *, with_session: bool, status: bool = True
    ) -> Annotation:
        """The annotation of the span that a decision is about."""
        found = annotation(made.decision, with_session=with_session, status=status)
        attributes = dict(found.attributes)
        if made.agent:
            attributes[AGENT] = made.agent
        if self._verdicts is not None and made.decision.action is not Action.ALLOW:
            attributes |= self._verdicts.span_annotations(made)
        return Annotation(attributes, found.error, found.links)

    def above(self, made: DecisionRecord) -> None:
        """Annotates the open agent span above, and the topmost open span.

        An abort ends the agent, and turns its span to ERROR; a deny does not. A note takes no other
        decision's place.
        """
        decision = made.decision
        above = () if made.opened is None else made.opened.above()
        steps = [found for place in above for found in self._step_of(place)]
        if not steps:
            return
        agents = [found for found in steps if found[1] is not None and found[1].kind is Kind.AGENT]
        agent, step = agents[0] if agents else steps[-1]
        aborts = decision.action is Action.ABORT
        own = annotation(decision, with_session=_lacks_session(step), status=aborts)
        noted = decision.action is Action.ALLOW
        if noted and self._is_marked(agent):
            if self._events:
                agent.add_event(own)
        else:
            self._annotate(agent, own, event=self._events)
        top, step = steps[-1]
        if self._verdicts is not None and not noted:
            said = self._verdicts.topmost_annotations(made, top.attributes)
            self._annotate(top, Annotation(said))
        if top is not agent and not (noted and self._is_marked(top)):
            outer = annotation(decision, with_session=_lacks_session(step), status=False)
            self._annotate(top, outer)

    def _is_marked(self, span: ActiveSpanView) -> bool:
        kept = self._ended.get((span.trace_id, span.span_id))
        return semconv.DECISION_ACTION in span.attributes or (
            kept is not None and semconv.DECISION_ACTION in kept.attributes
        )

    def _step_of(self, opened: ActiveSpan) -> Iterator[tuple[ActiveSpanView, Step | None]]:
        """An open span of the SDK and its step; nothing if unreadable, which is counted once."""
        view = opened.view
        if not isinstance(view, ActiveSpanView) or opened.unreadable:
            return
        found: tuple[ActiveSpanView, Step | None] | None = None
        with swallow(self._faults, "mark"):
            found = view, self._reader.read(view)
        if found is None:
            opened.unreadable = True
        else:
            yield found

    def _running(self, span: ActiveSpanView, made: DecisionRecord) -> None:
        """Annotates a span that is still open, without a status; as in `above`, a note yields."""
        decision, without = made.decision, _lacks_session(self._reader.read(span))
        said = span.attributes
        added = self._judged(made, with_session=without, status=False)
        added = Annotation(added.added_to(said), added.error, added.links)
        if decision.action is not Action.ALLOW or (
            said.get(semconv.DECISION_ACTION, "allow") == "allow"
        ):
            span.annotate(added, event=self._events)
        elif self._events:
            span.add_event(added)

    def starting(self, opened: ActiveSpan, session: Session) -> None:
        """Annotates a call that starts although its loop is denied or its session aborted."""
        control, span = session.flag.control, opened.view
        decision = control.decision
        if not isinstance(span, ActiveSpanView):
            return
        if decision is None:
            if opened.parent is None or opened.runs:
                span.annotate(_set_by(control))
            return
        step = self._reader.read(span)
        if step is None or step.kind is not Kind.TOOL:
            return
        step.agent = step.agent or opened.agent
        prepare(step)
        with session.lock:
            call = session.call_of(step)
            mine = (
                decision.action is Action.ABORT or call is None or session.state.policy.denies(call)
            )
        if mine:
            added = annotation(decision, with_session=step.session is None, status=False)
            span.annotate(added)


def _set_by(control: Control) -> Annotation:
    """The annotation of a span that starts in a stopped session: how, by whom, and why."""
    attributes: dict[str, str | bool | int | float] = {
        semconv.DECISION_ACTION: control.action.value,
        semconv.CONTROL_BY: control.by or "",
        semconv.DECISION_MESSAGE: control.reason or "",
        semconv.SESSION_ID: control.session or "",
    }
    return Annotation(attributes)


def _lacks_session(step: Step | None) -> bool:
    return step is None or step.session is None
