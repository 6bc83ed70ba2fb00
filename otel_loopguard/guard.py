"""The hall: spans and steps come in, decisions go out. Live and replay are the same from here."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from otel_loopguard.control import keep
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.decisions import Decisions, annotation, hint
from otel_loopguard.detectors import stalled
from otel_loopguard.dialects import Once, Reader
from otel_loopguard.faults import Faults, swallow
from otel_loopguard.live import EndedSpan, LiveSpan
from otel_loopguard.opens import Open, Opens
from otel_loopguard.policy import Loop, Verdict
from otel_loopguard.sessions import Session, Sessions
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.control import Flag
    from otel_loopguard.core import Annotation, Decision, Detection, Evidence
    from otel_loopguard.dialects import SpanView

_log = logging.getLogger("otel_loopguard")
_ANNOTATIONS = 4096
_TOOL_SPANS = 1024

StepListener = Callable[[Session, int, Step], None]
DecisionListener = Callable[[Session, "Decision"], None]


class LoopGuard:
    """Notices loops and stalls in the steps it is shown, decides, and raises the flag.

    All of it may be called from any thread. Nothing here calls the network or waits for anything
    but the locks of its own tables.

    Args:
        settings: Settings; from the environment by default.
        clock: `live` counts time by the machine's clock; in `replay` it is told by `tick`.
        on_step: Called with session, index and step for every canonical step.
        on_decision: Called with session and decision for every decision.

    Attributes:
        settings: Its settings.
        faults: Faults that were swallowed, counted by kind.
        reader: Reads steps off spans.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        clock: Literal["live", "replay"] = "live",
        on_step: StepListener | None = None,
        on_decision: DecisionListener | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.faults = Faults()
        self.reader = Reader()
        self._live = clock == "live"
        self._now = 0
        self._on_step = on_step
        self._on_decision = on_decision
        # Re-entrant: a log handler or a finalizer may start or end a span while it is held.
        self._lock = threading.RLock()
        self._once = Once(joined=self._joined)
        self._opens = Opens(self.settings.max_open_steps)
        self._sessions = Sessions(self.settings)
        self._decisions = Decisions(self.settings)
        self._annotations: OrderedDict[tuple[int, int], Annotation] = OrderedDict()
        self._tool_spans: OrderedDict[str, str] = OrderedDict()
        if self._live:
            keep(self)
            _renew_after_fork(self)

    @classmethod
    def default(cls) -> LoopGuard:
        """The guard of this process, made on first use from the environment."""
        global _default  # noqa: PLW0603
        with _making:
            if _default is None:
                _default = cls()
            return _default

    @property
    def attached(self) -> bool:
        """Whether a live span processor feeds it, or did until it was shut down."""
        return self in _attached

    def attach(self) -> None:
        """Says that a live span processor feeds it."""
        _attached.add(self)

    @staticmethod
    def all_attached() -> tuple[LoopGuard, ...]:
        """Every guard that a live span processor feeds."""
        return tuple(_attached)

    def opened(
        self, span: SpanView, session: str | None = None, above: SpanView | None = None
    ) -> None:
        """A span started.

        Args:
            span: The span; kept until it ends.
            session: The session that the context names, if it does.
            above: The span above, where that is not shown to the guard by itself.
        """
        with self._lock:
            parent = self._opens.get(span.parent_id)
            if parent is None and above is not None:
                parent = Open(above, None, None)
            named = None
            if session is not None:
                named = self._sessions.explicit(span.trace_id, session, self._clock())
            elif parent is not None:
                named = parent.session
            self._opens.add(span.span_id, Open(span, parent, named))
            self._once.opened(span)
            known = named or self._sessions.of_trace(span.trace_id)
        if known is not None and known.flag.stops:
            self._mark_start(span, known)

    def follows(self, span_id: int) -> bool:
        """Whether an open span was shown to the guard."""
        return self._opens.get(span_id) is not None

    def closed(self, span: SpanView) -> None:
        """A span ended."""
        with self._lock:
            opened = self._opens.take(span.span_id)
            if opened is not None and isinstance(span, EndedSpan):
                span.compare(opened.view)
            step = self.reader.read(span)
            if step is not None and step.kind is Kind.TOOL:
                self._remember_tool(span.name, step.name)
            counted = self._once.closed(span, step)
            sessions = [self._session_of(canonical, opened) for canonical in counted]
        for session, canonical in zip(sessions, counted, strict=True):
            self._judge(session, canonical, opened)

    def observe(self, step: Step, session: str) -> None:
        """Takes a canonical step, as labelled recordings have them.

        Args:
            step: The step; `end` 0 means that its times are unknown.
            session: Key of its session.
        """
        with self._lock:
            found = self._sessions.named(session, self._clock(step.end))
        self._judge(found, step, None)

    def tick(self, now: int) -> None:
        """The clock is now `now`: finds calls that run for too long.

        Args:
            now: Nanoseconds since the epoch.
        """
        self._now = now
        settings = self.settings
        limit = int(settings.step_timeout_s * 1e9)
        with self._lock:
            held = self._once.overdue(now)
            near = self._opens.to_warn(now - int(limit * settings.stall_warning))
            over = self._opens.to_judge(now - limit)
        self._count(held)
        for opened in (*over, *near):
            self._stall(opened, now)

    @property
    def watching(self) -> bool:
        """Whether any span is open, so that the timer has to look."""
        return bool(self._opens)

    def bind(self, trace_id: int, session: str) -> None:
        """Says that a trace belongs to a session, before its spans say so."""
        with self._lock:
            self._sessions.bind(trace_id, session, self._clock())

    def annotation(self, trace_id: int, span_id: int) -> Annotation | None:
        """What is to be put on an ended span, for an exporter; given once."""
        if not self._annotations:
            return None
        return self._annotations.pop((trace_id, span_id), None)

    def flag_of(self, session: str) -> Flag | None:
        """The flag of a session by its key; None if it is not known."""
        found = self._sessions.find(session)
        return None if found is None else found.flag

    def flag_in(self, trace_id: int) -> Flag | None:
        """The flag of the session of a trace; None if it is not known."""
        found = self._sessions.of_trace(trace_id)
        return None if found is None else found.flag

    def shutdown(self) -> None:
        """Counts what is still held back. The guard may be used further."""
        with self._lock:
            held = self._once.overdue(2**63)
        self._count(held)

    def _session_of(self, step: Step, opened: Open | None) -> Session:
        if opened is not None and opened.session is not None:
            return opened.session
        return self._sessions.of_step(step, step.end or self._clock())

    def _count(self, steps: tuple[Step, ...]) -> None:
        """Counts steps that were held back for a twin that did not come."""
        for step in steps:
            with self._lock:
                session = self._session_of(step, None)
            self._judge(session, step, None)

    def _judge(self, session: Session, step: Step, opened: Open | None) -> None:
        with session.lock:
            index = session.steps
            session.steps += 1
            decision = self._consider(session, step, index)
        if self._on_step is not None:
            with swallow(self.faults, "on_step"):
                self._on_step(session, index, step)
        if decision is not None:
            self._announce(session, decision, step.session is None, opened)

    def _consider(self, session: Session, step: Step, index: int) -> Decision | None:
        if step.kind is Kind.MODEL:
            session.observer.model_step(step)
            return None
        if step.kind is Kind.OTHER and step.name == "user":
            session.user_turn()
            return None
        if step.kind is not Kind.TOOL or step.name in self.settings.exempt_tools:
            return None
        evidence = session.observer.evidence(step, index)
        call = evidence.call
        if session.troubled and evidence.error and call and session.ladder.denies(call):
            verdict = session.ladder.defied(call, evidence.tool, index)
            return self._decide(session, step, call, verdict, index)
        detections = [
            found for detector in session.detectors if (found := detector.observe(evidence))
        ]
        if not detections:
            if session.troubled:
                self._lower(session, evidence, index)
            return None
        session.troubled = True
        return self._decide(session, step, call, session.ladder.judge(detections, index), index)

    def _lower(self, session: Session, evidence: Evidence, index: int) -> None:
        """A call outside of every loop takes a hint or a deny down again."""
        ladder = session.ladder
        ladder.fade(index)
        if session.flag.raised and not ladder.knows(evidence.call):
            session.flag.lower()

    def _decide(
        self, session: Session, step: Step, call: int | None, verdict: Verdict | None, index: int
    ) -> Decision | None:
        if verdict is None:
            return None
        decision = self._decisions.decide(
            session.key, verdict, step=index, time=step.end or self._clock(),
            trace_id=step.trace_id, span_id=step.span_id, call=call,
        )  # fmt: skip
        if not decision.shadow:
            session.flag.set(
                decision.action, reason=decision.message, hint=hint(decision), decision=decision
            )
        return decision

    def _announce(
        self, session: Session, decision: Decision, with_session: bool, opened: Open | None
    ) -> None:
        level = logging.WARNING if decision.action.stops else logging.INFO
        _log.log(level, "%s: session %s: %s", decision.action, session.key, decision.message)
        added = annotation(decision, with_session=with_session)
        with self._lock:
            self._annotations[(decision.trace_id, decision.span_id)] = added
            if len(self._annotations) > _ANNOTATIONS:
                self._annotations.popitem(last=False)
        if opened is not None:
            self._mark_above(opened, decision)
        if self._on_decision is not None:
            with swallow(self.faults, "on_decision"):
                self._on_decision(session, decision)

    def _mark_above(self, opened: Open, decision: Decision) -> None:
        """Annotates the open agent span above, and the topmost open span.

        An abort ends the agent, and turns its span to ERROR; a deny does not.
        """
        above = [place.view for place in opened.above() if isinstance(place.view, LiveSpan)]
        if not above:
            return
        agent = next((view for view in above if self._is_agent(view)), above[-1])
        aborts = decision.action is Action.ABORT
        agent.annotate(
            annotation(decision, with_session=True, status=aborts), event=self.settings.span_events
        )
        if agent is not above[-1]:
            above[-1].annotate(annotation(decision, with_session=True, status=False), event=False)

    def _is_agent(self, view: LiveSpan) -> bool:
        step = self.reader.read(view)
        return step is not None and step.kind is Kind.AGENT

    def _mark_start(self, span: SpanView, session: Session) -> None:
        """Annotates a tool span that starts although its session is denied or aborted."""
        decision = session.flag.control.decision
        if decision is None or not isinstance(span, LiveSpan):
            return
        step = self.reader.read(span)
        if step is None or step.kind is not Kind.TOOL:
            return
        with session.lock:
            call = session.observer.call_of(step)
            mine = decision.action is Action.ABORT or call is None or session.ladder.denies(call)
        if mine:
            added = annotation(decision, with_session=step.session is None, status=False)
            span.annotate(added, event=False)

    def _stall(self, opened: Open, now: int) -> None:
        step = self.reader.read(opened.view)
        tool = None if step is None or step.kind is not Kind.TOOL else step.name
        tool = tool or self._tool_spans.get(opened.view.name)
        if tool is None or tool in self.settings.exempt_tools:
            return
        running = (now - opened.view.start) / 1e9
        found = stalled(self.settings, tool, opened.view.span_id, running)
        if found is None:
            return
        if running < self.settings.step_timeout_s:
            with self._lock:
                if self._opens.get(opened.view.span_id) is opened:
                    self._opens.watch_further(opened)
        self._announce_stall(opened, step, found, now)

    def _announce_stall(self, opened: Open, step: Step | None, found: Detection, now: int) -> None:
        view = opened.view
        with self._lock:
            session = opened.session or self._sessions.of_trace(view.trace_id)
            if session is None:
                nameless = Step(Kind.TOOL, view.name, trace_id=view.trace_id)
                session = self._sessions.of_step(step or nameless, now)
        loop = Loop(found.keys, view.span_id, Action.HINT, 0, session.steps)
        decision = self._decisions.decide(
            session.key, Verdict(Action.HINT, found, loop), step=session.steps, time=now,
            trace_id=view.trace_id, span_id=view.span_id,
        )  # fmt: skip
        session.troubled = True
        if not decision.shadow and session.flag.control.action is Action.ALLOW:
            session.flag.set(
                Action.HINT, reason=found.message, hint=hint(decision), decision=decision
            )
        if isinstance(view, LiveSpan):
            view.annotate(annotation(decision, with_session=False), event=self.settings.span_events)
        self._announce(session, decision, step is None or step.session is None, opened)

    def _remember_tool(self, span_name: str, tool: str | None) -> None:
        """Some dialects name the tool only when its span ends; the timer asks before."""
        if tool is not None and span_name not in self._tool_spans:
            self._tool_spans[span_name] = tool
            if len(self._tool_spans) > _TOOL_SPANS:
                self._tool_spans.popitem(last=False)

    def _forked(self) -> None:
        """In the child of a fork: locks may be held by threads that are not here."""
        self._lock = threading.RLock()
        self._once = Once(joined=self._joined)
        self._opens = Opens(self.settings.max_open_steps)
        self._sessions = Sessions(self.settings)

    def _joined(self, one: int, other: int) -> None:
        self._sessions.join(one, other)

    def _clock(self, known: int | None = None) -> int:
        if self._live:
            return time.time_ns()
        return known or self._now


_default: LoopGuard | None = None
_making = threading.Lock()
_attached: weakref.WeakSet[LoopGuard] = weakref.WeakSet()


def _renew_after_fork(guard: LoopGuard) -> None:
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(guard)

    def renew() -> None:
        found = reference()
        if found is not None:
            found._forked()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    os.register_at_fork(after_in_child=renew)
