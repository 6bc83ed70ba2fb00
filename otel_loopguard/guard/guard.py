"""The hall: spans and steps come in, decisions go out. Live and replay are the same from here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from opentelemetry.trace import INVALID_SPAN_CONTEXT

from otel_loopguard._control.context import GuardRegistry, keep
from otel_loopguard._control.current_call import CapturedContent, making
from otel_loopguard._control.replication import ControlReplication
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import InternalErrors, attempt, swallow
from otel_loopguard._util.fork import reset_after_fork
from otel_loopguard._util.locks import held, later, new_lock, settle
from otel_loopguard._util.logger import warn_blind
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors import DETECTORS, Registry
from otel_loopguard.detectors.llm_judge import judges
from otel_loopguard.escalation.service import EscalationService
from otel_loopguard.evidence import prepare
from otel_loopguard.execution.admission import Admissions
from otel_loopguard.execution.profiler import Profiler
from otel_loopguard.guard.decisions import DecisionApplier, DecisionNotifier
from otel_loopguard.guard.queries import SessionQueries
from otel_loopguard.guard.untraced import Untraced
from otel_loopguard.policy import diagnoser
from otel_loopguard.resilience.registry import ResilienceSubscriber
from otel_loopguard.sessions import JournalStore, Session, SessionRegistry, WriterJournalStore
from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans, shown_at
from otel_loopguard.sessions.decisions import Decisions
from otel_loopguard.sessions.requested_calls import DIALECT as MESSAGES
from otel_loopguard.sessions.resolver import SessionResolver
from otel_loopguard.sessions.stats import DecisionIndex
from otel_loopguard.sessions.watchdog import Stall, Watchdog
from otel_loopguard.settings import Settings
from otel_loopguard.spans.dedup import SpanDeduplicator
from otel_loopguard.spans.keys import plan_above
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.sdk_views import ActiveSpanView, EndedSpanView
from otel_loopguard.stores import open_writer
from otel_loopguard.telemetry import State, Telemetry
from otel_loopguard.telemetry.span_annotator import SpanAnnotator

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_loopguard.core import Annotation, Decision
    from otel_loopguard.detectors.llm_judge import Judge
    from otel_loopguard.execution.latency import ResourceSample
    from otel_loopguard.spans.views import SpanView
    from otel_loopguard.stores import Store, Writer


class StoreBackend:
    """The store of one guard and its one writer; nothing, where no store is named.

    A replay has none: what it shows is long over.

    Attributes:
        writer: Writes behind; None without a store.
        shelf: Where the journals of sessions are put; None for nowhere.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        *,
        live: bool,
        shelf: JournalStore | None = None,
    ) -> None:
        named = live and bool(settings.store_url)
        self.writer: Writer | None = open_writer(settings, faults) if named else None
        self.shelf = shelf
        if shelf is None and self.writer is not None:
            self.shelf = WriterJournalStore(self.writer)

    @property
    def store(self) -> Store | None:
        """The store itself, for what does its own waiting."""
        return None if self.writer is None else self.writer.store

    def close(self) -> None:
        """Writes what waits, at most for `tuning.stores.flush_s`. It may be used further."""
        if self.writer is not None:
            self.writer.close()


_NEVER: Final = 2**63 - 1
_ALONE: Final = 5
"""Tool calls that are traces of their own, in no session, until that is told."""

StepListener = Callable[[Session, int, Step], None]
DecisionListener = Callable[[Session, "Decision"], None]


class LoopGuard(SessionQueries):
    """Notices loops and stalls in the steps it is shown, decides, and raises the flag.

    All of it may be called from any thread. Nothing here calls the network or waits for anything
    but the locks of its own tables.

    Args:
        settings: Settings; from the environment by default.
        clock: `live` counts time by the machine's clock; in `replay` it is told by `tick`.
        on_step: Called with session, index and step for every canonical step.
        on_decision: Called with session and decision for every decision.
        judge: Asked when weak signs of trouble persist, on a thread of its own; the one that the
            setting `judge` names by default, in `live` only.
        shelf: Where the journals of sessions are put (C6); none by default.
        meter_provider: Whose metrics tell of it (O3); the global one by default.
        logger_provider: Who emits its log events (O3); the global one by default.

    Attributes:
        settings: Its settings.
        faults: Faults that were swallowed, counted by kind.
        reader: Reads steps off spans.
        profiler: What it learned of tools: how long they take, what they cost.
        telemetry: Its metrics and log events.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings | None = None,
        *,
        clock: Literal["live", "replay"] = "live",
        on_step: StepListener | None = None,
        on_decision: DecisionListener | None = None,
        judge: Judge | None = None,
        shelf: JournalStore | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.faults = InternalErrors()
        self.reader = Reader()
        self._live = clock == "live"
        self._now = 0
        self._alone = 0
        self._on_step = on_step
        self._on_decision = on_decision
        self._backing = StoreBackend(self.settings, self.faults, live=self._live, shelf=shelf)
        place = self.settings.diagnoser if self._live else ""
        self._decisions = Decisions(self.settings, diagnoser(place, self.faults))
        asking = judges(self.settings, self.faults, judge, live=self._live)
        self._registry = Registry(self.settings, (*DETECTORS, *asking))
        writer = self._backing.writer
        self.profiler = Profiler(self.settings, writer=writer, resources=self._sampled)
        self._admissions = Admissions(self.settings, self.profiler, self.faults, writer)
        self._sharing = ControlReplication(self, writer, live=self._live)
        self._lessons = ResilienceSubscriber(
            self.settings, self.faults, self._backing.store, live=self._live
        )
        self.telemetry = Telemetry(
            self.settings, self.faults, live=self._live, detectors=self._registry.names,
            estimate=self.profiler.estimate, meters=meter_provider, loggers=logger_provider,
        )  # fmt: skip
        self._start()
        if self._live:
            keep(self)
            reset_after_fork(self)

    @classmethod
    def default(cls) -> LoopGuard:
        """The guard of this process, made on first use from the environment."""
        return _guards.default(cls)

    @property
    def attached(self) -> bool:
        """Whether a live span processor feeds it, or did until it was shut down."""
        return self in _guards.attached

    def attach(self) -> None:
        """Says that a live span processor feeds it."""
        _guards.attach(self)

    def switch_off(self) -> None:
        """Says that a live span processor of it was made, with the setting `enabled` False."""
        _guards.switch_off(self)

    @staticmethod
    def any_switched_off() -> bool:
        """Whether a live span processor was made with the setting `enabled` False."""
        return _guards.any_off

    @staticmethod
    def all_attached() -> tuple[LoopGuard, ...]:
        """Every guard that a live span processor feeds."""
        return _guards.attached

    def opened(
        self, span: SpanView, session: str | None = None, above: SpanView | None = None
    ) -> None:
        """A span started.

        Args:
            span: The span; kept until it ends.
            session: The session that the context names, if it does.
            above: The span above, where that is not shown to the guard by itself.
        """
        # What is written on spans is read, and parsed, before the lock is taken.
        run = self._belonging.run(span)
        parent = self._opens.get(span.parent_id)
        if parent is None and above is not None:
            parent = ActiveSpan(above, None, None)
        asks = parent is not None and not parent.told
        late = self._belonging.run(parent.view) if parent is not None and asks else None
        with self._lock:
            asks = asks and parent is not None and not parent.told
            if parent is not None and asks and self._belonging.says_late(parent, late):
                self._stalls.runs(parent)
            named = None
            if session is not None:
                named = self._sessions.explicit(span.trace_id, session, self._clock())
            elif parent is not None:
                named = parent.session
            opened = ActiveSpan(span, parent, named, shown_at(span.start, self._clock(span.start)))
            gone = self._opens.add(span.span_id, opened)
            call = making()
            if call is not None:
                self._contents.began(span.span_id, call)
            self._once.opened(span)
            self._belonging.begins(opened, run)
            if gone is not None:
                self._stalls.closed(gone, None, opened.since)
                self._belonging.lost(gone)
            self._stalls.opened(opened)
            known = named or self._sessions.of_trace(span.trace_id)
        if known is not None and known.flag.stops:
            self._marks.starting(opened, known)
        else:
            self._admissions.starting(opened, self.reader)
        settle()

    def follows(self, span_id: int) -> bool:
        """Whether an open span was shown to the guard."""
        return self._opens.get(span_id) is not None

    def watches(self, span: ReadableSpan) -> bool:
        """Whether this very span was shown to the guard, and is open."""
        opened = self._opens.get((span.get_span_context() or INVALID_SPAN_CONTEXT).span_id)
        view = None if opened is None else opened.view
        return isinstance(view, ActiveSpanView) and view.wraps(span)

    def closed(self, span: SpanView, session: str | None = None) -> None:
        """A span ended.

        Args:
            span: The span.
            session: The session that the context names; for a span whose start was not shown,
                because nothing said yet that it is one of an agent.
        """
        # What is written on a span is read, and parsed, before the lock is taken.
        before = self._opens.get(span.span_id)
        if before is not None and isinstance(span, EndedSpanView):
            span.compare(before.view)
        step = attempt(self.faults, "read", self.reader.read, span)
        with self._lock:
            self._contents.complete(span.span_id, step)
        tasks = step is not None and step.task is not None and step.tasks is None
        if step is not None and tasks and before is not None:
            views = (above.view for above in before.above())
            step.tasks = attempt(self.faults, "read", plan_above, views)
        if step is not None:
            with swallow(self.faults, "prepare"):
                prepare(step, self.settings.max_value_chars)
        messages = None
        with swallow(self.faults, "messages"):
            messages = self._untraced.read(
                span, step,
                (None if before is None else before.session)
                or self._sessions.of_trace(span.trace_id),
            )  # fmt: skip
        with self._lock:
            opened = self._opens.take(span.span_id)
            if opened is not None:
                if step is not None and step.kind is Kind.TOOL and step.agent is None:
                    step.agent = opened.agent
                self._admissions.learn(span, step)
                self._stalls.closed(opened, step, self._clock(span.end))
            counted = self._once.closed(span, step, self._clock(span.end))
            if session is not None and opened is None and counted:
                self._sessions.explicit(span.trace_id, session, self._clock(span.end))
            judged = [(self._belonging.of(canonical, opened), canonical) for canonical in counted]
            own = None if opened is None else opened.session
            with swallow(self.faults, "messages"):
                judged = self._untraced.ended(
                    span, step, judged, session=own or self._sessions.of_trace(span.trace_id),
                    agent=None if opened is None else opened.agent, read=messages,
                )  # fmt: skip
            if opened is not None:
                self._belonging.ends(opened, step)
        for found, canonical in judged:
            with swallow(self.faults, "prepare"):
                prepare(canonical, self.settings.max_value_chars)
            self._judge(found, canonical, opened)
        if self._live:
            self._untraced.warn()
        settle()

    def let_go(self, span_id: int) -> None:
        """An open span is somebody else's to tell: it is forgotten, and is no step.

        Args:
            span_id: The span.
        """
        if held():
            later(partial(self.let_go, span_id))
            return
        with self._lock:
            opened = self._opens.take(span_id)
            self._contents.complete(span_id, None)
            if opened is None:
                return
            self._stalls.closed(opened, None, self._clock())
            self._belonging.lost(opened)
            left = self._once.closed(opened.view, None, self._clock())
        self._count(tuple(left))

    def observe(self, step: Step, session: str) -> None:
        """Takes a canonical step, as labelled recordings have them.

        Args:
            step: The step; `end` 0 means that its times are unknown.
            session: Key of its session.
        """
        with self._lock:
            found = self._sessions.named(session, self._clock(step.end))
        with swallow(self.faults, "prepare"):
            prepare(step, self.settings.max_value_chars)
        self._judge(found, step, None)
        settle()

    def tick(self, now: int) -> None:
        """The clock is now `now`: finds what runs for too long.

        Args:
            now: Nanoseconds since the epoch.
        """
        self._now = now
        with self._lock:
            overdue = self._once.overdue(now)
        self._count(overdue)
        for stall in self._stalls.due(now):
            if not attempt(self.faults, "stall", self._stall, stall):
                self._stalls.give_up(stall.opened)
        if self._live and now >= self._sessions.due_at:
            self._expire(now)
        settle()

    @property
    def due(self) -> int:
        """When to call `tick` next, nanoseconds since the epoch; 2**63 - 1: not at all."""
        aged = self._sessions.due_at if self._live else _NEVER
        return min(self._stalls.due_at, self._once.due, aged)

    def limit_s(self, tool: str, args: object) -> float:
        """Seconds that a call of a tool may take by its estimate (D14); 600 without one."""
        return self._stalls.limit_s(tool, args)

    def health(self) -> tuple[str, ...]:
        """What does not agree with itself in its own state, a sentence each (E11).

        It is looked at every `tuning.stalls.health_s` anyway; this looks now, at all open spans.
        """
        return tuple(self._stalls.health())

    def bind(self, trace_id: int, session: str) -> None:
        """Says that a trace belongs to a session, before its spans say so."""
        with self._lock:
            self._sessions.bind(trace_id, session, self._clock())

    def annotation(self, trace_id: int, span_id: int) -> Annotation | None:
        """What is to be put on an ended span, for an exporter; given once."""
        return self._marks.take(trace_id, span_id)

    def shutdown(self) -> None:
        """Counts what is still held back. The guard may be used further."""
        with self._lock:
            overdue = self._once.overdue(2**63)
        self._count(overdue)
        self._sessions.close()
        self._lessons.close()
        self._sharing.close()
        if self._people is not None:
            self._people.close()
        self._backing.close()
        self.telemetry.close()
        settle()

    def forked(self) -> None:
        """Starts anew in the child of a fork: locks may be held by threads that are not here."""
        self.faults.forked()
        self.profiler.forked()
        self._admissions.forked()
        self.telemetry.forked()
        self._start()

    def _sampled(self) -> ResourceSample | None:
        """The newest reading of the machine, for the profiles of tools."""
        return self._admissions.resources.sample

    def _start(self) -> None:
        # What it guards and what may be done while it is held: otel_loopguard/locks.py.
        self._lock = new_lock()
        self._once = SpanDeduplicator(joined=self._joined)
        self._contents = CapturedContent()
        self._untraced = Untraced()
        self._opens = ActiveSpans(self.settings.max_open_steps)
        self._sessions = SessionRegistry(
            self.settings, self._registry, self.faults, self._lock, self._backing.shelf
        )
        self._sessions.begun = self._sharing.begun
        self._sessions.gone = self._forgotten
        self._sessions.is_open = self._opens.uses
        self._sessions.live = self._live
        self._belonging = SessionResolver(
            self._sessions, self._opens, self.reader, self.faults, self._clock
        )
        self._marks = SpanAnnotator(self.reader, self.faults, events=self.settings.span_events)
        self._ledger = DecisionIndex()
        self._people = None if not self._live else EscalationService(
            self.settings, self._sessions, self._opens,
            lock=self._lock, faults=self.faults, writer=self._backing.writer,
        )  # fmt: skip
        numbers = self.telemetry.numbers
        self._rulings = DecisionApplier(self._decisions, self._ledger, self._sessions, numbers)
        if self._people is not None:
            self.telemetry.follow(self._people.escalations)
        self._announcer = DecisionNotifier(
            self._marks, self._people, self.telemetry, self._admissions,
            faults=self.faults, listener=self._on_decision,
        )  # fmt: skip
        self.telemetry.watch(
            State(
                self._opens, self._sessions, self._ledger, self._marks, self._admissions,
                self._lessons.remedies, self._backing.writer, self.settings.tuning.stores.queue,
            )
        )  # fmt: skip
        self._stalls = Watchdog(
            self.settings, self.reader, self._opens, self._sessions,
            lock=self._lock, faults=self.faults, live=self._live, limits=self.profiler,
        )  # fmt: skip

    def _count(self, steps: tuple[Step, ...]) -> None:
        """Counts steps that were held back for a twin that did not come."""
        for step in steps:
            # One that cannot be counted does not keep the others from it.
            with swallow(self.faults, "held"):
                with self._lock:
                    judged = self._untraced.counted([(self._belonging.of(step, None), step)])
                for session, counted in judged:
                    with swallow(self.faults, "prepare"):
                        prepare(counted, self.settings.max_value_chars)
                    self._judge(session, counted, None)

    def _judge(self, session: Session, step: Step, opened: ActiveSpan | None) -> None:
        decisions: list[Decision] = []
        if self._people is not None:
            self._people.seen()
        with session.lock:
            index = session.progress.steps
            with swallow(self.faults, "judge"):
                index, findings = session.take(step)
                self.telemetry.numbers.took(session, step)
                now = step.end or self._clock()
                for found in session.unruled:
                    with swallow(self.faults, "judge"):
                        decisions.append(
                            self._rulings.found(session, step, found, index=index, time=now)
                        )
                decisions.extend(
                    self._rulings.found(session, step, found, index=index, time=now)
                    for found in findings
                )
                session.ruled()
                self._sessions.wrote(session)
        if step.dialect != MESSAGES:
            # What a message tells of has no times of its own.
            with swallow(self.faults, "profile"):
                self.profiler.finished(step, session.key)
        with swallow(self.faults, "lessons"):
            self._lessons.learn(step)
        if self._on_step is not None:
            with swallow(self.faults, "on_step"):
                self._on_step(session, index, step)
        if self._live and step.kind is Kind.TOOL and step.parent_id is None:
            self._stands_alone(session, step)
        self._announcer.ended(session, step, decisions, opened)
        step.reading = None  # steps are kept for a while, to be compared with those that follow

    def _stands_alone(self, session: Session, step: Step) -> None:
        """A call that is a whole trace, in no session: no other call can be compared with it."""
        if session.named or step.server or session.progress.steps > 1:
            return
        self._alone += 1
        if self._alone == _ALONE:
            warn_blind(
                "calls_alone",
                "%d tool calls came each as a trace of its own, without an agent's span above and "
                "without a session, so none is compared with another: name the session around the "
                "run with otel_loopguard.session(key), or run it in otel_loopguard.turn()",
                _ALONE,
            )

    def _stall(self, stall: Stall) -> bool:
        """Says of a span that is open that it is stalled; always True."""
        opened, now = stall.opened, stall.time
        with self._lock:
            if not self._opens.has(opened):
                return True  # it ended meanwhile
            session = opened.session or self._sessions.of_step(stall.step, now)
            decisions = self._rulings.stalled(session, stall)
        self._announcer.running(session, decisions, opened, stall.step.agent)
        return True

    def _expire(self, now: int) -> None:
        """Forgets the sessions that are too old, a few at a time: spans wait for the lock."""
        found = True
        while found:
            with self._lock:
                aged = self._sessions.expire(now)
            found = bool(aged)
            # What they hold is freed here, where nobody waits.
            del aged

    def _forgotten(self, session: Session) -> None:
        """A session is known no more; what others remember of it by its key goes too."""
        self._stalls.forget(session.key)
        self._sharing.forget(session.key)
        if self._people is not None:
            self._people.escalations.register.forget(session.key)

    def _joined(self, one: int, other: int) -> None:
        self._sessions.join(one, other)

    def _clock(self, known: int | None = None) -> int:
        if self._live:
            return now()
        return known or self._now


_guards: GuardRegistry[LoopGuard] = GuardRegistry()
