"""The guard: turns spans and steps into decisions, live and in replay."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from otel_loopguard._control.context import DECISIONS, CurrentCall, register_guard
from otel_loopguard._control.flag import OBSERVERS, POLICY, STOPPING, Flag, asks
from otel_loopguard._control.replication import ControlReplication
from otel_loopguard._util.backlog import Backlog, Event
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import InternalErrors, Log, attempt, logger, swallow
from otel_loopguard._util.locks import held, later, new_lock, reset_after_fork, settle, waiting
from otel_loopguard._util.text import check_limit, expected
from otel_loopguard._util.worker import weak_reference
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.detectors import DETECTORS, Registry
from otel_loopguard.escalation.service import EscalationService
from otel_loopguard.evidence import prepare
from otel_loopguard.guard.intake import Intake
from otel_loopguard.guard.queries import SessionQueries, is_resilience_used
from otel_loopguard.guard.untraced import (
    Messages,
    Untraced,
    uncounted,
    unpriced,
    warn_of_let_through,
    warn_of_misnamed,
)
from otel_loopguard.policy import diagnoser
from otel_loopguard.policy.hints import hint
from otel_loopguard.sessions.active import NEVER, ActiveSpan, ActiveSpans, Deferred, first_look
from otel_loopguard.sessions.decisions import Decisions, Finding
from otel_loopguard.sessions.observation import DecisionRecord, Observation, Subscribers, agent_of
from otel_loopguard.sessions.profiler import Profiler
from otel_loopguard.sessions.registry import DecisionIndex, SessionRegistry
from otel_loopguard.sessions.requested_calls import DIALECT as MESSAGES
from otel_loopguard.sessions.resolver import SessionResolver, asked
from otel_loopguard.sessions.session import Session
from otel_loopguard.sessions.watchdog import Stall, Watchdog
from otel_loopguard.settings import Settings
from otel_loopguard.spans.dedup import SpanDeduplicator
from otel_loopguard.spans.messages import fetched
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.sdk_views import REWRITTEN, ActiveSpanView, EndedSpanView
from otel_loopguard.spans.steps import plan_above, tells_late
from otel_loopguard.telemetry import State, Telemetry
from otel_loopguard.telemetry.span_annotator import SpanAnnotator

if TYPE_CHECKING:
    from collections import deque

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider

    from otel_loopguard.core.decision import Annotation
    from otel_loopguard.detectors.llm_judge import Judge
    from otel_loopguard.execution.admission import Admissions
    from otel_loopguard.resilience import ResilienceRegistry
    from otel_loopguard.sessions.journal_worker import JournalStore
    from otel_loopguard.sessions.observation import Listener
    from otel_loopguard.spans.views import SpanView
    from otel_loopguard.stores import Writer

_TOOL: Final = Kind.TOOL
_MODEL: Final = Kind.MODEL
_SET_BACK: Final = 10**9
"""Nanoseconds by which a clock was set back at least: of two threads that tick one may be late."""
_TOOL_SPANS: Final = 1024
"""Names of spans of tools: a process has fewer tools, and a name may be made up for each call."""

StepListener = Callable[[Session, int, Step], None]
DecisionListener = Callable[[Session, "Decision"], None]


class LoopGuard(SessionQueries):
    """Detects loops and stalls in the steps it observes, decides, and raises the flag.

    Every method may be called from any thread. Nothing here calls the network or waits for
    anything but the locks of its own tables.

    Args:
        settings: Settings; from the environment by default.
        clock: `live` uses the machine's clock; in `replay`, `tick` advances the time.
        local: Whether its sessions run in this process, where `otel_loopguard.control` finds their
            flags; False for those of other machines.
        on_step: Called with session, index and step for every canonical step.
        on_decision: Called with session and decision for every decision.
        judge: Called on a thread of its own when weak signs of trouble persist; by default the
            one that the setting `judge` names, in `live` only.
        journal_store: Where the journals of sessions are kept; nowhere by default.
        manual_journals: Whether only `recall` reads and `write_journals` writes journals, and the
            ids of decisions follow from their spans: other guards judge the same sessions.
        name: What its lines in the log begin with, where a process has several guards.
        like: A guard with equal settings, whose reader and list of detectors it shares; makes
            creating many guards cheap.
        meter_provider: Records its metrics; the global one by default.
        logger_provider: Emits its log events; the global one by default.

    Attributes:
        settings: Its settings.
        faults: Faults that were swallowed, counted by kind.
        reader: Reads steps off spans.
        profiler: Durations and costs of tools, as observed.
        log: Writes its lines in the log.
        telemetry: Its metrics and log events.
        backlog: Spans of the SDK that started or ended and are not judged yet.
        ignores: Whether a span of the SDK need not be added to the backlog.
        subscribers: The callbacks for steps and decisions.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings | None = None,
        *,
        clock: Literal["live", "replay"] = "live",
        local: bool = True,
        on_step: StepListener | None = None,
        on_decision: DecisionListener | None = None,
        judge: Judge | None = None,
        journal_store: JournalStore | None = None,
        manual_journals: bool = False,
        name: str = "",
        like: LoopGuard | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        self.settings = settings = settings or Settings()
        _check(settings, clock, on_step, on_decision)
        self.faults = faults = InternalErrors()
        self.log = log = Log(name) if name else logger
        self.reader = Reader() if like is None else like.reader
        # By names of spans, the newest; entries are only added, so that readers take no lock.
        self._tools: BoundedDict[str, str] = BoundedDict(_TOOL_SPANS)
        self._live = live = clock == "live"
        self._local = local
        self._now = 0
        self._on_step = on_step
        self._on_decision = on_decision
        self._max_chars = settings.tuning.calls.value_chars
        self._prepare = partial(prepare, limit=self._max_chars)
        self.backlog = Backlog(self)
        self._intake = Intake(self.reader, self._max_chars)
        self.ignores = self._intake.ignores
        # A replay has no store: its sessions are long over.
        self._writer: Writer | None = None
        if live and settings.store_url:
            from otel_loopguard.stores import open_writer  # noqa: PLC0415  # with a store only

            self._writer = open_writer(settings, faults, log)
        self._journal_store = journal_store
        self._manual_journals = manual_journals
        if journal_store is None and self._writer is not None:
            from otel_loopguard.sessions import journal_worker  # noqa: PLC0415  # with a store only

            self._journal_store = journal_worker.WriterJournalStore(self._writer)
        place = settings.diagnoser if live else ""
        self._decisions = Decisions(settings, diagnoser(place, faults), derived=manual_journals)
        detectors = DETECTORS
        if judge is not None or settings.judge:
            from otel_loopguard.detectors.llm_judge import judges  # noqa: PLC0415  # on demand

            detectors += judges(settings, faults, judge, live=live)
        known = None if like is None else like._registry  # noqa: SLF001  # of the same class
        self._registry = known or Registry(settings, detectors)
        self.profiler = Profiler(settings, writer=self._writer)
        self._admissions: Admissions | None = None
        # Raises on unusable settings: before this guard is registered anywhere.
        self.telemetry = Telemetry(
            settings, faults, live=live, local=local, detectors=self._registry.names,
            misses=self.profiler.misses, log=log, meters=meter_provider, loggers=logger_provider,
        )  # fmt: skip
        self._replication = ControlReplication(self, self._writer, hints=journal_store is not None)
        self._resilience: ResilienceRegistry | None = None
        self._start()
        if live and (self._writer is not None or settings.breaker != "off" or is_resilience_used()):
            _ = self.resilience
        if live:
            self._replication.start()
            if local:
                register_guard(self)
            else:
                asks()  # from where its sessions run
            reset_after_fork(self)

    @classmethod
    def default(cls) -> LoopGuard:
        """The guard of this process, made on first use from the environment."""
        global _default  # noqa: PLW0603
        with _making:
            found = _default = _default or cls()
        settle()
        return found

    @property
    def attached(self) -> bool:
        """True if a live span processor feeds it, or did until it was shut down."""
        return self in _attached

    def attach(self) -> None:
        """Records that it has a live span processor, which feeds it unless it is not `enabled`."""
        (_attached if self.settings.enabled else _switched_off).add(self)

    def detach(self) -> None:
        """Takes back that it has a live span processor."""
        _attached.discard(self)
        _switched_off.discard(self)

    @staticmethod
    def any_switched_off() -> bool:
        """True if a live span processor was made with the setting `enabled` False."""
        return bool(_switched_off)

    @staticmethod
    def all_attached() -> tuple[LoopGuard, ...]:
        """Every guard that a live span processor feeds."""
        return tuple(_attached)

    def settle(self, limit_s: float = 5.0) -> None:
        """Judges every span that started or ended by now, and lets listeners hear of it.

        Whatever asks the guard does the first by itself. Call it before you look at what your own
        listeners were told; not from within one, nor with a lock held that one of them takes.

        Args:
            limit_s: Seconds to wait, at most, for a listener that another thread is calling.
        """
        check_limit(limit_s)
        self.backlog.settle()
        self.subscribers.publish(limit_s)
        settle()

    def judge_events(self, events: deque[Event]) -> None:
        """Judges starts and ends of spans of the SDK; for `Backlog`, whose lock is held."""
        self._intake.judge(self, events)

    def publish(self) -> None:
        """Notifies the listeners; for `Backlog`."""
        self.subscribers.publish()

    def on_start(  # noqa: C901, PLR0913  # on the way of every span
        self, span: SpanView, session: str | None = None, above: SpanView | None = None,
        attributes: Mapping[str, object] | None = None, *, at: int | None = None,
        call: CurrentCall | None = None, parent_context: object = ...,
    ) -> None:  # fmt: skip
        """Handles the start of a span.

        Args:
            span: The span; kept until it ends.
            session: The session that the context names, if it does.
            above: Its parent span, if the guard does not see that one by itself.
            attributes: Its attributes, if already read.
            at: When it started by the guard's clock, nanoseconds since the epoch; now by default.
            call: The call that an adapter was making.
            parent_context: What the SDK passes to a span processor, which a guard is not.

        Raises:
            TypeError: The guard was added to a tracer provider itself.
        """
        if parent_context is not ...:
            msg = "a LoopGuard is no span processor: add LoopGuardSpanProcessor(guard) in its place"
            raise TypeError(msg)
        active, run, said, described, is_call = self.active, None, None, False, False
        # Attributes are read and parsed before the lock is acquired.
        try:
            attributes = span.attributes if attributes is None else attributes
            described = not self.reader.marks.isdisjoint(attributes)
            if self.reader.is_call(attributes):
                is_call = not tells_late(span.scope)
            else:
                run = self.reader.run(span, attributes)
            said = asked(run)
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("read", fault)
        parent_id = span.parent_id
        if parent_id in active.deferred:
            with self._lock:
                self._follow(parent_id)
        parent, late = active.by_id.get(parent_id), None
        if parent is None:
            parent = None if above is None else ActiveSpan(above, None, None)
        elif not parent.described:
            late = attempt(self.faults, "read", self.reader.run, parent.view)
            parent.asked = attempt(self.faults, "read", asked, late)
        if at is None or not self._live:
            at = now() if self._live else span.start or self._now
        with self._lock:
            if (
                parent is not None
                and not parent.described
                and self._resolver.identify_late(parent, late)
            ):
                self._watchdog.add_run(parent)
            named = None if parent is None else parent.session
            if session is not None:
                named = self._sessions.explicit(span.trace_id, session, at)
            self._resolver.starts_below(parent)
            opened = ActiveSpan(span, parent, named, at)
            opened.described = described or run is not None
            opened.call, opened.asked = call, said
            opened.is_call = is_call
            self._add(opened, run)
        if STOPPING:
            known = opened.session or self._sessions.of_trace(span.trace_id)
            if known is not None and known.flag.stops:
                self._annotator.starting(opened, known)

    def may_be_stopped(self, trace_id: int, session: str | None) -> bool:
        """True if a span that starts may belong to a stopped session. Lock-free."""
        if session is not None:
            known = self._sessions.find(session)
        else:
            known = self._sessions.of_trace(trace_id)
        # Of a trace that is not known yet nothing is known.
        return known is None or known.flag.stops

    def _add(self, opened: ActiveSpan, run: Step | None) -> None:
        """Starts following an open span. The lock is held."""
        parent = opened.parent
        gone = self.active.add(opened)
        if run is not None or opened.top is None or (parent is not None and parent.holds):
            self._resolver.begins(opened, run)
        if gone is not None:
            self._lost(gone, opened.since)
        self._watchdog.on_start(opened)

    def _follow(self, span_id: int | None) -> None:
        """Starts following a deferred span, its ancestors first. The lock is held."""
        chain: list[Deferred] = []
        while (found := self.active.deferred.pop(span_id, None)) is not None:
            chain.append(found)
            above = found.span.parent
            span_id = None if above is None else above.span_id
        for found in reversed(chain):
            view = ActiveSpanView(found.span)
            parent = self.active.by_id.get(view.parent_id) or found.above
            session = None if parent is None else parent.session
            self._resolver.starts_below(parent)
            opened = ActiveSpan(view, parent, session, found.at)
            opened.described = found.described
            self._add(opened, None)
            opened.is_call = found.is_call

    def _follow_all(self) -> None:
        """Starts following every deferred span, before open spans are inspected."""
        self.active.due = NEVER
        with self._lock:
            for span_id in list(self.active.deferred):
                self._follow(span_id)

    def follows(self, span_id: int) -> bool:
        """True if the guard follows an open span."""
        self.backlog.settle()
        return span_id in self.active.by_id or span_id in self.active.deferred

    def _opened(self, span_id: int) -> ActiveSpan | None:
        if span_id in self.active.deferred:
            with self._lock:
                self._follow(span_id)
        return self.active.by_id.get(span_id)

    def on_end(
        self, span: SpanView, session: str | None = None, step: Step | None = None, *,
        at: int | None = None,
    ) -> None:  # fmt: skip
        """Handles the end of a span, and lets listeners hear of it.

        Args:
            span: The span.
            session: The session that the context names; for a span whose start was not shown
                because nothing marked it as an agent's yet.
            step: Its step, if `reader` has read it.
            at: When it ended by the guard's clock, nanoseconds since the epoch; now by default.
        """
        self.end(span, session, step, at, read=step is not None)
        self.subscribers.publish()
        if waiting:
            settle()

    def end(
        self, span: SpanView, session: str | None, step: Step | None, at: int | None, *, read: bool
    ) -> None:
        """As `on_end`, with whether the span was `read`; listeners hear with the next `publish`."""
        active, span_id = self.active, span.span_id
        opened = active.by_id.get(span_id)
        if opened is None and active.deferred:
            opened = self._ended(span, read=read)
        step, messages = self._read(span, opened, step, read=read)
        self._resolver.look(opened, span.trace_id)
        if at is None or not self._live:
            at = now() if self._live else span.end or self._now
        with self._lock:
            if opened is None or opened.followed:
                opened = active.pop(span_id)
            if opened is not None:
                self._watchdog.on_end(opened, step, at, span.name)
            counted = self._dedup.closed(span, step, at)
            if session is not None and opened is None and counted:
                self._sessions.explicit(span.trace_id, session, at)
            judged: list[tuple[Session, Step]] = []
            for canonical in counted:
                moment = at if canonical is step else self._clock(canonical.end)
                # One that waited for this span may turn out to be of another run.
                own = opened if canonical.trace_id == span.trace_id else None
                judged.append((self._resolver.resolve(canonical, own, moment), canonical))
            judged = self._add_requested(span, step, judged, opened, messages)
            if opened is None or opened.top is opened or opened.branch is not None:
                self._resolver.ends(span, opened, step, at, judged)
        for found, canonical in judged:
            if canonical is not step:
                attempt(self.faults, "prepare", self._prepare, canonical)
            self._judge(found, canonical, opened if canonical.trace_id == span.trace_id else None)

    def _ended(self, span: SpanView, *, read: bool) -> ActiveSpan | None:
        """A deferred span that ended, as if it had been followed."""
        active, parent_id = self.active, span.parent_id
        found = active.deferred.pop(span.span_id, None)
        if found is None:
            return None
        if not active.deferred:
            active.due = NEVER
        if parent_id in active.deferred:
            with self._lock:
                self._follow(parent_id)
        parent = active.by_id.get(parent_id) or found.above
        if parent is not None and parent.is_call and not parent.works:
            with self._lock:
                self._resolver.starts_below(parent)
        # What another processor has taken out of the ended span is still on the live one.
        view = span if read else ActiveSpanView(found.span)
        return ActiveSpan(view, parent, None if parent is None else parent.session, found.at)

    def _read(
        self, span: SpanView, opened: ActiveSpan | None, step: Step | None, *, read: bool
    ) -> tuple[Step | None, Messages | None]:
        """Reads and parses an ended span, before the lock is acquired."""
        where = "read"
        try:
            if not read:
                if (
                    opened is not None
                    and isinstance(span, EndedSpanView)
                    and REWRITTEN in span.attributes
                ):
                    span.start_attributes = opened.view.attributes
                step = self.reader.read(span)
            if step is None:
                return None, None
            if opened is not None:
                opened.complete(step)
                if step.task is not None and step.tasks is None:
                    views = (above.view for above in opened.above())
                    step.tasks = attempt(self.faults, "read", plan_above, views)
            where = "prepare"
            if step.reading is None:
                prepare(step, self._max_chars)
            if self.active.deferred and (step.lacks or self._dedup.silent(step)):
                # One that is open may know more of it.
                self._follow_all()
            if step.kind is not _TOOL and (step.kind is _MODEL or fetched(span)):
                where = "messages"
                session = None if opened is None else opened.session
                known = session or self._sessions.of_trace(span.trace_id)
                return step, self._untraced.read(span, step, known)
        except Exception as fault:  # noqa: BLE001
            self.faults.caught(where, fault)
        return step, None

    def _add_requested(
        self, span: SpanView, step: Step | None, judged: list[tuple[Session, Step]],
        opened: ActiveSpan | None, read: Messages | None,
    ) -> list[tuple[Session, Step]]:  # fmt: skip
        """Adds calls that only messages report to the steps to judge. The lock is held."""
        try:
            if step is None or step.kind is _TOOL or (step.kind is not _MODEL and read is None):
                return self._untraced.counted(judged, step)
            own = None if opened is None else opened.session
            return self._untraced.answered(
                span, step, judged, session=own or self._sessions.of_trace(span.trace_id),
                agent=None if opened is None else opened.agent, read=read,
            )  # fmt: skip
        except Exception as fault:  # noqa: BLE001
            self.faults.caught("messages", fault)
            return judged

    def _lost(self, opened: ActiveSpan, at: int) -> None:
        """Forgets an open span whose end will not be seen. The lock is held."""
        self._watchdog.on_end(opened, None, at)
        self._resolver.lost(opened)
        self._dedup.lost(opened.view.span_id)

    def let_go(self, span_id: int) -> None:
        """Forgets an open span without a step, since something else reports it.

        Args:
            span_id: The span.
        """
        self.backlog.settle()
        if held():
            later(partial(self.let_go, span_id))
            return
        with self._lock:
            self.active.deferred.pop(span_id, None)
            opened = self.active.pop(span_id)
            if opened is None:
                return
            released = self._dedup.closed(opened.view, None, self._clock())
            self._lost(opened, self._clock())
        self._count(released)
        self.subscribers.publish()

    def observe(self, step: Step, session: str) -> None:
        """Observes a canonical step, such as one of a labelled recording.

        Args:
            step: The step; an `end` of 0 means unknown times.
            session: Key of its session.
        """
        if not isinstance(step, Step) or not isinstance(step.kind, Kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            # No detector knows a kind that is a text: nothing would ever be found.
            raise TypeError(expected("a Step of a Kind", getattr(step, "kind", step), "Kind.TOOL"))
        self.backlog.settle()
        with self._lock:
            found = self._sessions.named(session, self._clock(step.end))
        attempt(self.faults, "prepare", self._prepare, step)
        self._judge(found, step, None)
        self.subscribers.publish()
        settle()

    def tick(self, now: int) -> None:
        """Advances the clock to `now` and finds what has run for too long.

        Args:
            now: Nanoseconds since the epoch.
        """
        self.backlog.settle()
        if self._live and now < self._now - _SET_BACK:
            self._set_back(now, self._now - now)
        self._now = now
        if now < self.due:
            return  # as for nearly every event of a replay
        if self.active.deferred:
            self._follow_all()
        with self._lock:
            overdue = self._dedup.overdue(now)
        self._count(overdue)
        for stall in self._watchdog.due(now):
            if not attempt(self.faults, "stall", self._stall, stall):
                self._watchdog.give_up(stall.opened)
        while self._live and now >= self._sessions.due_at:
            # A few at a time: spans wait for the lock.
            with self._lock:
                aged = self._sessions.expire(now)
            if not aged:
                break
            # Frees their memory here, outside the lock.
            del aged
        self.subscribers.publish()
        settle()

    def _set_back(self, now: int, by: int) -> None:
        """The clock was set back: what waits must not wait until it has caught up."""
        if self.active.deferred:
            self._follow_all()
        with self._lock:
            held = self._dedup.overdue(NEVER)
            self._watchdog.set_back(now, by)
        self._count(held)

    @property
    def due(self) -> int:
        """When to call `tick` next, nanoseconds since the epoch; 2**63 - 1 for never."""
        # Without min(), which costs several times as much: this runs twice per span.
        due, sessions, deferred = (
            self._watchdog.deadlines.top,
            self._sessions.due_at,
            self.active.due,
        )
        if self._live and sessions < due:
            due = sessions
        if deferred < due:  # noqa: PLR1730
            due = deferred
        return min(due, self._dedup.due) if self._dedup.held else due

    def health(self) -> tuple[str, ...]:
        """Checks its own state now and describes each inconsistency in a sentence.

        The watchdog does so every `tuning.stalls.health_s` anyway.
        """
        self.backlog.settle()
        return tuple(self._watchdog.health())

    def bind(self, trace_id: int, session: str) -> None:
        """Assigns a trace to a session before its spans name one."""
        with self._settled():
            self._sessions.bind(trace_id, session, self._clock())

    def recall(self, session: str, trace_id: int) -> None:
        """Restores a session from its journal. Blocks.

        Args:
            session: Key of the session.
            trace_id: A trace of it.
        """
        self.backlog.settle()
        self._sessions.recall(session, trace_id, self._clock())

    def when_looked_up(self, then: Callable[[], None]) -> None:
        """Calls back once the store has said what other processes decided of known sessions.

        Args:
            then: Called on another thread, or at once without a store.
        """
        self._replication.when_looked_up(then)

    def adopt(self, session: str) -> bool:
        """Makes a session known that only the store knows, as of a process that is gone. Blocks.

        Args:
            session: Its key.

        Returns:
            False if the store does not know it either.

        Raises:
            StoreError: The store does not answer.
        """
        return self._replication.adopt(session)

    def write_journals(self) -> None:
        """Writes pending journal entries now."""
        self.backlog.settle()
        self._sessions.flush()

    def forget(self, session: str) -> None:
        """Forgets a session that is judged elsewhere from now on.

        Args:
            session: Its key.
        """
        with self._settled():
            self._sessions.forget(session)

    def annotation(self, trace_id: int, span_id: int) -> Annotation | None:
        """Returns the annotation of an ended span, once, for an exporter."""
        self.backlog.settle()
        return self._annotator.pop(trace_id, span_id)

    def count_held(self) -> None:
        """Counts the calls held back for a span that may carry more detail."""
        with self._settled():
            overdue = self._dedup.overdue(2**63)
        self._count(overdue)
        self.subscribers.publish()

    def flush(self, limit_s: float | None = None) -> bool:
        """Stores and sends what waits: journals, profiles, controls, escalations. Blocks.

        Args:
            limit_s: How long, at most; never longer than `tuning.stores.flush_s`, also the default.

        Returns:
            Whether the store and the webhook have taken everything.
        """
        check_limit(limit_s)
        most_s = self.settings.tuning.stores.flush_s
        until = time.monotonic() + (most_s if limit_s is None else min(limit_s, most_s))
        self.settle(max(until - time.monotonic(), 0))
        self._sessions.flush()
        parts = [part for part in (self._writer, self._escalation) if part is not None]
        flushed = [part.flush(max(until - time.monotonic(), 0)) for part in parts]
        return all(flushed)

    def shutdown(self) -> None:
        """Counts the calls still held back. The guard remains usable."""
        until = time.monotonic() + self.settings.tuning.stores.flush_s
        escalation, writer, admissions = self._escalation, self._writer, self._admissions
        parts: list[tuple[str, Callable[[], object]]] = [
            ("held", self.count_held),
            ("listeners", self.settle),
            ("names", lambda: self._live and warn_of_misnamed(self.settings, self.profiler.tools)),
            ("resources", lambda: admissions and admissions.resources.stop()),
            ("journal", self._sessions.close),
            ("sharing", self._replication.close),
            ("escalation", lambda: escalation and escalation.close()),
            ("store", lambda: writer and writer.close(until - time.monotonic())),
            ("verdicts", self._end_all),
            ("telemetry", self.telemetry.close),
            ("settle", settle),
        ]
        for name, close in parts:
            # One that fails keeps none of the others from its end.
            with swallow(self.faults, f"shutdown.{name}"):
                close()

    def _end_all(self) -> None:
        if self.telemetry.verdicts is not None:
            for session in self._sessions.all:
                self._over(session)

    def forked(self) -> None:
        """Resets in the child of a fork, where locks may be held by threads that are gone."""
        self.backlog.forked()
        self.profiler.forked()
        if self._admissions is not None:
            self._admissions.forked()
        self.telemetry.forked()
        self._start()

    def _start(self) -> None:
        """Creates what a fork has to replace."""
        settings, faults = self.settings, self.faults
        # What it guards, and what may run under it: see otel_loopguard/_util/locks.py.
        self._lock = new_lock()
        self._sessions = SessionRegistry(
            settings, self._registry, faults, self._lock, self._journal_store, live=self._live,
            manual_journals=self._manual_journals,
        )  # fmt: skip
        self.active = ActiveSpans(settings.tuning.stalls.open_steps, first_look(settings))
        self._dedup = SpanDeduplicator(
            self.active.by_id, joined=self._sessions.join, apart=self._sessions.apart,
            asks=self.reader.asks,
        )  # fmt: skip
        self._untraced = Untraced()
        self._sessions.begun = self._replication.begun
        self._sessions.gone = self._forgotten
        self._sessions.evicted = self.telemetry.numbers.evicted
        self._sessions.is_open = self.active.uses
        self._resolver = SessionResolver(
            self._sessions, self.active, self.reader, faults, self._clock,
            sees_starts=self._local or not self._live,
        )  # fmt: skip
        self._annotator = SpanAnnotator(
            self.reader, faults, events=settings.span_events,
            verdicts="annotations" in settings.verdicts,
        )  # fmt: skip
        self._index = DecisionIndex()
        self._escalation: EscalationService | None = None
        self._watch()
        self._watchdog = Watchdog(
            settings, self.reader, self.active, self._sessions, lock=self._lock, faults=faults,
            live=self._live, limits=self.profiler, tools=self._tools,
        )  # fmt: skip
        self.subscribers = Subscribers(faults)
        self._subscribe()
        if self._live:
            # Not before: a guard whose settings turn out to be unusable hears of nothing.
            OBSERVERS.add(self._flag_changed)
        if settings.limits_money or settings.prices_file:
            listener = unpriced(settings)
            if self._live and settings.limits_money:
                self.subscribers.steps.append(("unpriced", listener))
        if self._live and settings.limits_usage:
            self.subscribers.steps.append(("uncounted", uncounted()))

    def _watch(self) -> None:
        """Has telemetry read what there is by now, when metrics are collected."""
        asked = self._admissions
        self.telemetry.numbers.watch(
            State(
                self.active, self._sessions, self._index, self._annotator,
                asked and asked.counts, asked and asked.resources.use,
                self._resilience, self._writer, self._waiting if self._live else None,
            )
        )  # fmt: skip

    @property
    def admissions(self) -> Admissions:
        """Answers about calls before they run; loaded when somebody asks for the first."""
        if self._admissions is None:
            from otel_loopguard.execution.admission import Admissions  # noqa: PLC0415

            known = self.resilience
            with self._lock:
                self._admissions = made = self._admissions or Admissions(
                    self.settings, self.profiler, self.faults, known, self._writer
                )
                self.profiler.machine, self.telemetry.alerts = made.resources, made.alerts
                self._watch()
        return self._admissions

    @property
    def resilience(self) -> ResilienceRegistry:
        """Breakers, recoveries and checks; loaded when somebody asks, and learns from then on."""
        if self._resilience is None:
            from otel_loopguard.resilience import ResilienceRegistry  # noqa: PLC0415

            made = ResilienceRegistry(self.settings, self.faults, self._writer, self.log)
            with self._lock:
                if self._resilience is None:
                    self._resilience = made
                    self._teach(made)
                    self._watch()
        return self._resilience

    def _teach(self, found: ResilienceRegistry) -> None:
        own = self.subscribers.own
        own.append(("lessons", lambda seen: found.learn(seen.step, seen.session.key)))

    def _subscribe(self) -> None:
        """Lists the subscribers; only what is configured is in the lists."""
        steps, decisions = self.subscribers.steps, self.subscribers.decisions
        on_step, on_decision = self._on_step, self._on_decision
        settings, faults = self.settings, self.faults
        if self._live and (settings.webhook_url or settings.store_url or settings.control_socket):
            # Raises on unusable settings now rather than at the first escalation.
            escalation = self.escalation()
            if escalation.listens:
                steps.append(("admin", escalation.on_step))
        own, marks = self.subscribers.own, self.subscribers.marks
        if self.telemetry.numbers.on:
            own.append(("telemetry", self.telemetry.numbers.on_step))
            marks.append(("telemetry", self.telemetry.numbers.on_decision))
        own.append(("profile", self._profile))
        if self._resilience is not None:
            self._teach(self._resilience)
        if settings.execution_queue:
            _ = self.admissions  # likewise; it asks for `resilience`, which is taught once
        if on_step is not None:
            steps.append(("on_step", lambda seen: on_step(seen.session, seen.number, seen.step)))
        # The few steps that it may have to warn of.
        self._blind: list[Listener] = [
            ("untraced", self._untraced.on_step), ("untraced", warn_of_let_through),
        ]  # fmt: skip
        marks.append(("mark", self._annotator.on_decision))
        marks.append(("mark", self._annotator.above))
        if self._live:
            marks.append(
                ("escalation", lambda made: self.escalation().decided(made.session, made.decision))
            )
        if on_decision is not None:
            decisions.append(("on_decision", lambda made: on_decision(made.session, made.decision)))
        decisions.append(("on_decision", lambda made: DECISIONS.notify(made.decision, faults)))
        steps.extend(self.telemetry.on_steps)
        decisions.append(("log", self.telemetry.on_decision))
        if self.telemetry.verdicts is not None:
            decisions.append(("verdicts", self.telemetry.verdicts.on_decision))
        self.subscribers.cycles.append(("log", lambda line: self.telemetry.cycled(*line)))

    def _count(self, steps: tuple[Step, ...]) -> None:
        """Counts steps held back for a twin that did not arrive."""
        for step in steps:
            # One failure does not affect the other steps.
            with swallow(self.faults, "held"):
                with self._lock:
                    found = self._resolver.resolve(step, None, self._clock(step.end))
                    judged = self._untraced.late(found, step)
                for session, counted in judged:
                    attempt(self.faults, "prepare", self._prepare, counted)
                    self._judge(session, counted, None)

    def _judge(self, session: Session, step: Step, opened: ActiveSpan | None) -> None:
        """Lets a session observe a step, and queues the observation for the listeners."""
        made: list[DecisionRecord] = []
        with session.lock:
            state = session.state
            index = state.progress.steps
            try:
                index, findings = session.observe(step)
                # A person may have aborted it, of which the policy does not know.
                if findings and not session.flag.aborted:
                    self._decide(session, step, opened, index, findings, made)
                if session.journal is not None:
                    session.write_loops()
                    self._sessions.wrote(session)
            except Exception as fault:  # noqa: BLE001
                self.faults.caught("judge", fault)
            seen = Observation(
                session, index, step, session.evidence, tuple(session.detected), tuple(made),
                state.record.turn, state.progress.phases.over, session.shrunk,
                agent_of(step, opened),
            )  # fmt: skip
        self.subscribers.add(seen)
        if (step.parent_id is None or seen.detections or self._untraced.warns) and self._live:
            self.subscribers.note(self._blind, seen)
        if session.cycles is not None and session.cycles.lines:
            with swallow(self.faults, "log"):
                for news in session.cycles.publish(session.key, self._decisions.digest, self.log):
                    self.subscribers.note(self.subscribers.cycles, (session.key, news, opened))
        step.reading = None  # steps are kept for a while, to be compared with those that follow

    def _decide(  # noqa: PLR0913, PLR0917
        self, session: Session, step: Step, opened: ActiveSpan | None, index: int,
        findings: Iterable[Finding], made: list[DecisionRecord],
    ) -> None:  # fmt: skip
        """Decides about an ended step. The session's lock is held."""
        at = step.end or self._clock()
        decided: list[tuple[Finding, Decision]] = []
        for finding in findings:
            decision = self._decisions.decide(session.key, finding, step, index=index, time=at)
            decision = session.noted(decision)
            _raise_flag(session, decision, finding.quote)
            session.state.policy.carry_out(finding.verdict)
            # Where something stronger stands, the loop is refused by that.
            finding.verdict.loop.decision = "" if decision.shadow else session.flag.standing
            decided.append((finding, decision))
        session.write_loops()
        for finding, decision in decided:
            loop = finding.verdict.detection.own is None
            made.append(self._record(session, decision, step, opened, loop=loop))

    def _stall(self, stall: Stall) -> bool:
        """Decides about a span that has been open for too long; always True."""
        self.backlog.settle()
        opened, step = stall.opened, stall.step
        made: list[DecisionRecord] = []
        with self._lock:
            if not self.active.has(opened):
                return True  # it ended meanwhile
            session = opened.session or self._sessions.of_step(step, stall.time)
            self.telemetry.numbers.stalled(stall.detection.detector, agent_of(step, opened))
            if session.flag.aborted:
                return True
            for finding in session.stalled(stall.detection, step):
                index = session.state.progress.steps
                decision = self._decisions.decide(
                    session.key, finding, step, index=index, time=stall.time
                )
                decision = session.noted(decision)
                standing = session.flag.control.decision
                # The hint of a loop stands; that of a stall was the warning before its limit.
                stalls = standing is not None and standing.detector == decision.detector
                if decision.action.stops or stalls or not session.flag.raised:
                    _raise_flag(session, decision)
                session.state.policy.carry_out(finding.verdict)
                made.append(self._record(session, decision, step, opened, running=True))
        for record in made:
            self.subscribers.add_decision(record)
        return True

    def _record(  # noqa: PLR0913
        self, session: Session, decision: Decision, step: Step, opened: ActiveSpan | None,
        *, loop: bool = False, running: bool = False,
    ) -> DecisionRecord:  # fmt: skip
        """Records a decision in the report and the journal. The lock is held."""
        record, noted = session.state.record, decision.action is Action.ALLOW
        meaning = record.decided(decision, None if running else step, loop=loop)
        session.decided(decision)
        self._sessions.wrote(session, now=not noted)
        if not noted:
            self._index.add(decision.id, session)
        agent, spent = agent_of(step, opened), record.spent
        return DecisionRecord(
            session, decision, step, opened, agent, meaning, spent, running=running
        )

    def escalation(self) -> EscalationService:
        """The service that escalates to people; created on first use."""
        with self._lock:
            if self._escalation is None:
                self._escalation = EscalationService(
                    self.settings, self._sessions, self.active,
                    lock=self._lock, faults=self.faults, writer=self._writer, log=self.log,
                    find=weak_reference(self.find), adopt=weak_reference(self.adopt),
                )  # fmt: skip
                self._escalation.escalations.listen(self.telemetry.escalated)
                self._escalation.on_manual_change = self.telemetry.manual_change
            return self._escalation

    def _waiting(self) -> int:
        """The number of escalations without an answer."""
        escalation = self._escalation
        return 0 if escalation is None else len(escalation.escalations.open_escalations())

    def _flag_changed(self, flag: Flag) -> None:
        """Audits a change of a flag, unless the policy made it."""
        if self._escalation is not None or flag.control.by in (None, POLICY):
            return
        if held():
            # A signal handler changed it while our own code was running.
            later(partial(self._flag_changed, flag))
        else:
            self.escalation().changed(flag)

    def _forgotten(self, session: Session) -> None:
        """Drops what other parts keep about a forgotten session."""
        self._over(session)
        self._watchdog.forget(session.key)
        self._replication.forget(session.key)
        if self._escalation is not None:
            self._escalation.escalations.register.forget(session.key)

    def _over(self, session: Session) -> None:
        # With manual journals, another guard may continue the session.
        if self.telemetry.verdicts is not None and not self._manual_journals:
            self.telemetry.verdicts.on_end(session)

    def _profile(self, seen: Observation) -> None:
        """Profiles a call; one that only a message reports has no duration."""
        step = seen.step
        if (
            step.kind is not _MODEL
            and step.dialect != MESSAGES
            and not (step.error and step.refused)
        ):
            self.profiler.finished(step, seen.session.key)

    def _clock(self, known: int | None = None) -> int:
        """The time: the machine's; in a replay the known one, or that of the last tick."""
        return now() if self._live else known or self._now


def _check(settings: object, clock: str, *listeners: object) -> None:
    """Refuses what would fail later, or never do anything.

    Raises:
        TypeError: The settings are none, or a listener cannot be called.
        ValueError: There is no such clock.
    """
    if not isinstance(settings, Settings):
        raise TypeError(expected("Settings", settings, "Settings(repeat_threshold=4)"))
    if clock not in ("live", "replay"):
        raise ValueError(f"clock must be 'live' or 'replay', got {clock!r:.100}")
    for one in listeners:
        if one is not None and not callable(one):
            raise TypeError(expected("a function", one))


def _raise_flag(session: Session, decision: Decision, quote: str = "") -> None:
    flag = session.flag
    # A hint for one loop does not clear the deny of another.
    # A decision that is only noted on the trace leaves the flag alone.
    noted = decision.shadow or decision.action is Action.ALLOW
    if not noted and decision.action.rank >= flag.control.action.rank:
        offer = session.state.record.offer(decision.action)
        flag.set(
            decision.action, reason=decision.message, hint=hint(decision) + offer,
            quoting=hint(decision, quote) + offer, decision=decision,
        )  # fmt: skip


_attached: Final[weakref.WeakSet[LoopGuard]] = weakref.WeakSet()
_switched_off: Final[weakref.WeakSet[LoopGuard]] = weakref.WeakSet()
_default: LoopGuard | None = None
_making: Final = new_lock()
