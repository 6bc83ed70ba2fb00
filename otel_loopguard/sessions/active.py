"""Spans that are open: their deadlines, and the agent runs that they belong to."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.budget import OPERATION, Clock, idle_clocks, phase_clocks, run_clocks
from otel_loopguard.spans.steps import handed_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from opentelemetry.sdk.trace import ReadableSpan

    from otel_loopguard._control.context import CurrentCall
    from otel_loopguard.sessions.session import Session
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.views import SpanView


def first_look(settings: Settings) -> int:
    """Nanoseconds after which an open span is looked at first: nothing is late before that."""
    own = [tool.step_timeout_s for tool in settings.tools.values() if tool.step_timeout_s]
    limits = [settings.step_timeout_s, settings.tuning.latency.limit_min_s, *own]
    if settings.tuning.stalls.model_s:
        limits.append(settings.tuning.stalls.model_s)
    first = min(min(limits) * settings.tuning.stalls.warning, settings.tuning.latency.stall_min_s)
    return round(first * 1e9)


_Subject = TypeVar("_Subject")

NEVER: Final = 2**63 - 1
"""A time that does not come, nanoseconds since the epoch."""
_SLACK: Final = 64
"""Dropped entries that a heap of any size may hold: a small one is not made anew each time."""


Ticket = list[Any]
"""An entry of the heap: when, a number that no other has, and what is to be looked at; None once
it was dropped or taken. A list, as it is made and changed for every span."""


class Deadlines(Generic[_Subject]):
    """Times at which subjects are to be looked at, the earliest first. O(log n) per entry.

    What is dropped leaves its ticket behind; when those are more than half, the heap is made
    anew, so that it stays within twice the number of live entries. Not thread-safe.

    Attributes:
        top: No live entry is due before this, nanoseconds since the epoch; `NEVER` if none is
            there. May be read without a lock.
    """

    def __init__(self) -> None:
        self._heap: list[Ticket] = []
        self._order = 0
        self._dead = 0
        self.top = NEVER

    def add(self, due: int, subject: _Subject) -> Ticket:
        """Takes a subject that is to be looked at."""
        self._order += 1
        ticket: Ticket = [due, self._order, subject]
        heappush(self._heap, ticket)
        self.top = self._heap[0][0]
        return ticket

    def drop(self, ticket: Ticket | None) -> None:
        """Forgets the subject of a ticket."""
        if ticket is None or ticket[2] is None:
            return
        ticket[2] = None
        self._dead += 1
        if self._dead > _SLACK and self._dead * 2 > len(self._heap):
            self._sweep()
        elif ticket is self._heap[0]:
            self._clean()

    def pop(self, now: int) -> tuple[int, _Subject] | None:
        """Time and subject of the earliest entry that is due; None if none is."""
        self._clean()
        if self.top > now or not self._heap:
            return None
        ticket = heappop(self._heap)
        due, _, subject = ticket
        ticket[2] = None
        self._clean()
        return due, subject

    def _sweep(self) -> None:
        # A finalizer may end or start a span in here: what it adds lands in the new heap.
        old, self._heap = self._heap, []
        live = [ticket for ticket in old if ticket[2] is not None]
        self._heap.extend(live)
        heapify(self._heap)
        self._dead -= len(old) - len(live)
        self._clean()

    def _clean(self) -> None:
        heap = self._heap
        while heap and heap[0][2] is None:
            heappop(heap)
            self._dead -= 1
        self.top = heap[0][0] if heap else NEVER


class Look(NamedTuple):
    """Result of one look at the clocks.

    Attributes:
        found: Clocks to report, and whether they are only near their limit.
        next: When to look again, nanoseconds since the epoch; `NEVER` if nothing will come.
    """

    found: list[tuple[Clock, bool]]
    next: int


def look(clocks: Iterable[Clock], said: set[str], now: int, warning: float) -> Look:
    """Reads clocks; each says at most two things, near its limit and past it."""
    found: list[tuple[Clock, bool]] = []
    then = NEVER
    for clock in clocks:
        near, limit = f"{clock.reason}_near", clock.after()
        if clock.reason in said:
            continue
        if limit <= now:
            said.update((clock.reason, near))
            found.append((clock, False))
            continue
        then = min(then, limit)
        if clock.warns and near not in said:
            if (soon := clock.after(warning)) <= now:
                said.add(near)
                found.append((clock, True))
            else:
                then = min(then, soon)
    return Look(found, then)


class Run:
    """One open run: the outermost span of an agent or a workflow.

    Attributes:
        opened: Its span.
        busy: Open steps below it; spans of agents are none.
        last: When a step of it last began or ended, nanoseconds since the epoch.
        phase: Name of the agent at work.
        phase_since: Since when, nanoseconds since the epoch.
        phases: How many phases there were.
        said: Codes of the limits that were reported.
        ticket: When it is to be looked at next.
    """

    __slots__ = (
        "busy", "last", "opened", "phase", "phase_since", "phases", "said", "ticket",
    )  # fmt: skip

    def __init__(self, opened: ActiveSpan) -> None:
        self.opened = opened
        self.busy = 0
        self.last = opened.since
        self.phase: str | None = None
        self.phase_since = opened.since
        self.phases = 0
        self.said: set[str] = set()
        self.ticket: Ticket | None = None

    def enters(self, agent: str, now: int) -> bool:
        """Notes that an agent is at work, and whether that ends another agent's phase."""
        if agent == self.phase:
            return False
        self.phase, self.phase_since = agent, now
        self.phases += 1
        self.said.discard("same_phase")
        return self.phases > 1


class Runs:
    """Judges open runs, and adds up what those of each session took. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle = round(settings.stall_idle_s * 1e9)
        self._idle_near = round(settings.stall_idle_s * settings.tuning.stalls.warning * 1e9)
        self._spent: BoundedDict[str, tuple[int, frozenset[str]]]
        self._spent = BoundedDict(settings.max_sessions)

    def look(self, run: Run, session: str | None, now: int) -> Look:
        """Findings about an open run, and when to look at it again."""
        spent, earlier = self._spent.get(session or "", (0, frozenset[str]()))
        said = run.said | earlier
        found = look(self._clocks(run, spent), said, now, self._settings.tuning.stalls.warning)
        run.said |= said - earlier
        return found

    def phase_due(self, run: Run) -> int | None:
        """When a run in which a phase began is to be looked at; None if that is no matter."""
        return next(
            (clock.after() for clock in phase_clocks(self._settings, run.phase_since)), None
        )

    def idle_due(self, run: Run) -> int | None:
        """When a run in which nothing runs is to be looked at; None if it is by then anyway."""
        # In plain numbers: this is asked whenever a step ends.
        due = run.last + self._idle_near
        if not self._idle or (run.ticket is not None and run.ticket[0] <= due):
            return None
        if "idle" in run.said:
            return None
        return run.last + self._idle if "idle_near" in run.said else due

    def ended(self, run: Run, session: str | None, now: int) -> None:
        """A run ended: its time counts for the next runs of its session, of the newest sessions."""
        if session is None:
            return
        spent, said = self._spent.get(session, (0, frozenset[str]()))
        overall = frozenset(code for code in run.said if code.startswith("overall"))
        self._spent[session] = (spent + max(now - run.opened.since, 0), said | overall)

    def left_s(self, run: Run | None, session: str, now: int) -> float | None:
        """Seconds that are left of the limits of a run, or of the next; None without a limit.

        That of the task, which a person may raise, is held against steps.
        """
        spent, _ = self._spent.get(session, (0, frozenset[str]()))
        clocks = run_clocks(self._settings, now if run is None else run.opened.since, spent)
        ends = [clock.after() for clock in clocks if clock.reason != OPERATION]
        return max(min(ends) - now, 0) / 1e9 if ends else None

    def forget(self, session: str) -> None:
        """A session is known no more."""
        self._spent.pop(session, None)

    def _clocks(self, run: Run, spent: int) -> list[Clock]:
        settings = self._settings
        clocks = run_clocks(settings, run.opened.since, spent)
        if not run.busy:
            clocks += idle_clocks(settings, run.last)
        if run.phases > 1:
            clocks += phase_clocks(settings, run.phase_since)
        return clocks


_LONG_AGO: Final = 600 * 10**9
"""Nanoseconds before it is shown that a span may have started: reporters of finished calls send
within minutes. One further back is of a recording, whose clock says nothing about now."""
_GRACE: Final = 10**9
"""Nanoseconds at most in which a span that started in the past is not called late: it ends at
once."""
_ENDS: Final = 256
"""Ended spans that a second end is compared with: two processors of one guard follow each other."""


@dataclass(slots=True)
class Branch:
    """One of the spans below another at which an agent is at work, told apart by a number.

    Attributes:
        scope: Its instrumentation scope.
        name: The span's name.
        number: No other that was open at the same time has it.
        ended: When it ended, nanoseconds since the epoch; None while it is open.
    """

    scope: str
    name: str
    number: int
    ended: int | None = None


class ActiveSpan:
    """An open span.

    Attributes:
        view: The span; live views show what was set on it meanwhile.
        parent: The open span above it, as far as it is known.
        session: Its session, where the context named one.
        since: When it began by the clock of the guard, nanoseconds since the epoch.
        grace: When time limits are first checked, nanoseconds since the epoch.
        agent: Name of the agent whose run it is part of, if a start told it.
        ended: Whether it has ended.
        followed: Whether it counts among the open steps of its run, and time limits hold for it;
            not where it was deferred until it ended.
        runs: Whether it is the run of an agent or a workflow, as far as its start told.
        run: The outermost such run that it is part of; None if none is known.
        top: The topmost run that it is part of, or what may turn out to be one; itself, if it is
            that. None if none is known.
        described: Whether its start told its kind.
        is_call: Whether its start said that it is a call.
        holds: Whether it is a trace of an SDK, around any number of runs.
        entered: The sessions in which it was taken for a run.
        asked: A key of the question to its agent; None without one, or before `heard`.
        heard: Whether `asked` was read.
        said: Codes of the limits that were reported.
        ticket: When to look at it next; None for never.
        unreadable: Whether reading it failed; it is not tried again.
        lane: Which of the runs at the same time it is part of; see `Step.lane`.
        inner: The same of what starts below it: another where it is one of several such runs.
        works: Whether an agent is known to be at work below it.
        branch: Where it works, which one of those below the span above it is; None for a topmost
            one, and for those between a branch and what is at work.
        branches: The newest branches below it, one of a number.
        call: The call that an adapter was making when it started; None for none.
        captured: Arguments and result that an adapter knows, for the guard only; None for none.
    """

    # No slots: what is rarely set is a default of the class, as one is made for every call.
    agent: str | None = None
    run: Run | None = None
    top: ActiveSpan | None = None
    asked: int | None = None
    call: CurrentCall | None = None
    captured: tuple[object, object] | None = None
    entered: tuple[Session, ...] = ()
    said: set[str] | None = None
    ticket: Ticket | None = None
    lane = inner = 0
    branch: Branch | None = None
    branches: tuple[Branch, ...] = ()
    described = True
    ended = followed = heard = holds = is_call = runs = unreadable = works = False

    def __init__(
        self, view: SpanView, parent: ActiveSpan | None, session: Session | None, at: int = 0
    ) -> None:
        # Skips ended spans, so that a chain of turns does not keep them all alive.
        while parent is not None and parent.ended:
            parent = parent.parent
        if parent is not None and (above := parent.parent) is not None and above.ended:
            while above is not None and above.ended:
                above = above.parent
            parent.parent = above
        self.view = view
        self.parent: ActiveSpan | None = parent
        self.session = session
        # A start more than ten minutes back is that of a recorded span.
        start = view.start
        self.since = since = start if at - _LONG_AGO <= start <= at else at
        # Reporters of finished calls start a span in the past and end it at once.
        self.grace = at + min(at - since, _GRACE)
        if parent is not None:
            self.agent = parent.agent
            if parent.inner:
                self.lane = self.inner = parent.inner
            if (run := parent.run) is not None and not run.opened.ended:
                self.run = run
            if (top := parent.top) is not None and not top.ended:
                self.top = top

    def complete(self, step: Step) -> None:
        """Completes the step of the ended span with what the span itself lacks."""
        step.opened, step.lane, step.within = self.since, self.lane, self.agent
        if step.agent is None and step.kind in (Kind.TOOL, Kind.HANDOFF):
            step.agent = self.agent
        if self.captured is None and self.call is None:
            return
        step.reading = None
        if self.captured is not None:
            step.args = self.captured[0] if step.args is None else step.args
            step.outcome = self.captured[1] if step.outcome is None else step.outcome
            if step.kind is Kind.HANDOFF and step.name is None:
                step.name = handed_to(step.args)
        call = self.call
        if call is not None and step.kind is Kind.TOOL and step.name == call.tool:
            step.args = call.args if step.args is None else step.args
            step.outcome = call.outcome if step.outcome is None else step.outcome

    def above(self) -> Iterator[ActiveSpan]:
        """The open spans above it, nearest first; at most 64, whatever the ids say."""
        place = self.parent
        for _ in range(64):
            if place is None:
                return
            yield place
            place = place.parent


@dataclass(slots=True)
class Deferred:
    """A span of the SDK that is no run as far as its start tells.

    Attributes:
        span: The span.
        at: When it was shown, nanoseconds since the epoch.
        is_call: Whether its start said that it is a call.
        described: Whether it said what it is, or was looked at again when a span started below it.
        above: The nearest above it that is followed.
    """

    span: ReadableSpan
    at: int
    is_call: bool
    described: bool
    above: ActiveSpan | None = None


class ActiveSpans:
    """The open spans of one guard. O(1) per span.

    A span that never ends goes when there is no more room.

    Attributes:
        by_id: The open span of an id; in the order in which they were added.
        deferred: Open spans that are not followed until a run begins below them, somebody asks for
            them, or they are open for long; most end before that.
        due: When the deferred are to be followed, nanoseconds since the epoch.
    """

    def __init__(self, most: int, defers: int = 0) -> None:
        self._most = most
        self._defers = defers
        self.deferred: dict[int | None, Deferred] = {}
        self.due = NEVER
        self._open: OrderedDict[int | None, ActiveSpan] = OrderedDict()
        self.by_id: Mapping[int | None, ActiveSpan] = self._open
        self._in_trace: dict[int, int] = {}
        # By identity: an open span keeps the session that the context named for it.
        self._in_session: dict[int, int] = {}
        # The spans that ended last, by identity; None as long as none is shown twice.
        self._ends: BoundedDict[int, weakref.ref[object]] | None = None

    def __len__(self) -> int:
        return len(self._open) + len(self.deferred)

    def __iter__(self) -> Iterator[ActiveSpan]:
        return iter(self._open.values())

    def defer(
        self, span_id: int, span: Deferred, parent_id: int | None, session: str | None = None
    ) -> bool:
        """Defers a starting span; False if it has to be followed. Lock-free.

        One for which the context names a session is only deferred below a span of that session.
        """
        deferred, at = self.deferred, span.at
        parent = self._open.get(parent_id)
        if parent is not None:
            if not parent.described:
                return False
        elif parent_id is not None:
            above = deferred.get(parent_id)
            if above is None:
                return False
            parent = above.above
        if span_id in deferred or span_id in self._open or len(deferred) >= self._most:
            return False
        own = None if parent is None or parent.session is None else parent.session.key
        if session not in {None, own} or (parent is not None and parent.holds):
            return False
        if parent is not None:
            if parent.run is not None:
                parent.run.last = at
            span.above = parent
        deferred[span_id] = span
        if self.due == NEVER:
            # Later ones are due later.
            self.due = at + self._defers
        return True

    def drop(self, span_id: int, at: int) -> bool:
        """Drops a deferred span that ended; False if it is or has to be followed. Lock-free."""
        found = self.deferred.get(span_id)
        if found is None:
            return False
        parent = found.above
        if parent is not None and (run := parent.run) is not None:
            if parent.agent not in (None, run.phase):
                # Its end is the start of another agent's phase.
                return False
            run.last = max(run.last, at)
        # Somebody may have asked for it meanwhile.
        dropped = self.deferred.pop(span_id, None) is not None
        if not self.deferred:
            self.due = NEVER
        return dropped

    def expect_twice(self) -> None:
        """Starts telling apart the ends of spans that are shown more than once."""
        if self._ends is None:
            self._ends = BoundedDict(_ENDS)

    def is_second_end(self, span: object) -> bool:
        """True if the end of this span was already shown. Lock-free."""
        ends = self._ends
        if ends is None:
            return False
        # Weakly: a span may hold megabytes, and later get the id() of one that is gone.
        before, ends[id(span)] = ends.get(id(span)), weakref.ref(span)
        return before is not None and before() is span

    def has(self, opened: ActiveSpan) -> bool:
        """True if this span is still open."""
        return self._open.get(opened.view.span_id) is opened

    def uses(self, session: Session) -> bool:
        """True if a span of a session is open."""
        return id(session) in self._in_session or not self._in_trace.keys().isdisjoint(
            session.traces
        )

    def add(self, opened: ActiveSpan) -> ActiveSpan | None:
        """Adds a span that started; returns the one that it replaces, or the oldest when full."""
        view = opened.view
        before = self.pop(view.span_id) if view.span_id in self._open else None
        if before is None and len(self._open) >= self._most:
            before = self.pop(cast("int", next(iter(self._open))))
        self._open[view.span_id], opened.followed = opened, True
        self._in_trace[view.trace_id] = self._in_trace.get(view.trace_id, 0) + 1
        if opened.session is not None:
            key = id(opened.session)
            self._in_session[key] = self._in_session.get(key, 0) + 1
        return before

    def pop(self, span_id: int) -> ActiveSpan | None:
        """Removes a span that ended."""
        opened = self._open.pop(span_id, None)
        if opened is None:
            return None
        opened.ended = True
        trace_id, session = opened.view.trace_id, opened.session
        left = self._in_trace.pop(trace_id, 1) - 1
        if left:
            self._in_trace[trace_id] = left
        if session is not None:
            left = self._in_session.pop(id(session), 1) - 1
            if left:
                self._in_session[id(session)] = left
        return opened
