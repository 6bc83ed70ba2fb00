"""Spans that are open: their deadlines, and the agent runs that they belong to."""

from __future__ import annotations

from collections import Counter, OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core import Kind
from otel_loopguard.detectors import idle_clocks, phase_clocks, run_clocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_loopguard._control.context import CurrentCall
    from otel_loopguard.core import Step
    from otel_loopguard.detectors import Clock
    from otel_loopguard.sessions.session import Session
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.views import SpanView


class Limits(Protocol):
    """What past runs say about how long something may take. Answered from memory, in seconds."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        """When a call is a stall: three times its estimate; None without an estimate."""
        ...

    def time_limit(self, tool: str, args: object = None) -> float:
        """How long a call may take: five times its estimate, within 30 to 600 s."""
        ...

    def agent_limit(self, agent: str) -> float:
        """How long a run of an agent may take, in the same way."""
        ...


def first_look(settings: Settings) -> int:
    """Nanoseconds after which an open span is looked at first: nothing is late before that."""
    own = [tool.step_timeout_s for tool in settings.tools.values() if tool.step_timeout_s]
    limits = [settings.step_timeout_s, settings.tuning.latency.limit_min_s, *own]
    if settings.stall_model_s:
        limits.append(settings.stall_model_s)
    first = min(min(limits) * settings.tuning.stalls.warning, settings.tuning.latency.stall_min_s)
    return round(first * 1e9)


_Subject = TypeVar("_Subject")

NEVER: Final = 2**63 - 1
"""A time that does not come, nanoseconds since the epoch."""
_SLACK: Final = 64


class Ticket(Generic[_Subject]):
    """One entry of the heap.

    Attributes:
        due: When its subject is to be looked at, nanoseconds since the epoch.
        subject: What is to be looked at; None once it was dropped or taken.
    """

    __slots__ = ("due", "subject")

    def __init__(self, due: int, subject: _Subject) -> None:
        self.due = due
        self.subject: _Subject | None = subject


class Deadlines(Generic[_Subject]):
    """Times at which subjects are to be looked at, the earliest first. O(log n) per entry.

    What is dropped leaves a small ticket behind; when those are more than half, the heap is made
    anew, so that it stays within twice the number of live entries. Not thread-safe.

    Attributes:
        top: No live entry is due before this, nanoseconds since the epoch; `NEVER` if none is
            there. May be read without a lock.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ticket[_Subject]]] = []
        self._order = 0
        self._dead = 0
        self.top = NEVER

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def add(self, due: int, subject: _Subject) -> Ticket[_Subject]:
        """Takes a subject that is to be looked at."""
        ticket = Ticket(due, subject)
        self._order += 1
        entry = (due, self._order, ticket)
        heappush(self._heap, entry)
        self.top = self._heap[0][0]
        return ticket

    def drop(self, ticket: Ticket[_Subject] | None) -> None:
        """Nobody has to look at the subject of a ticket any more."""
        if ticket is None or ticket.subject is None:
            return
        ticket.subject = None
        self._dead += 1
        if self._dead > _SLACK and self._dead * 2 > len(self._heap):
            self._sweep()
        self._clean()

    def pop(self, now: int) -> tuple[int, _Subject] | None:
        """Time and subject of the earliest entry that is due; None if none is."""
        self._clean()
        if self.top > now or not self._heap:
            return None
        due, _, ticket = heappop(self._heap)
        subject, ticket.subject = ticket.subject, None
        self._clean()
        return None if subject is None else (due, subject)

    def _sweep(self) -> None:
        # A finalizer may end or start a span in here: what it adds lands in the new heap.
        old, self._heap = self._heap, []
        live = [entry for entry in old if entry[2].subject is not None]
        self._heap.extend(live)
        heapify(self._heap)
        self._dead -= len(old) - len(live)

    def _clean(self) -> None:
        heap = self._heap
        while heap and heap[0][2].subject is None:
            heappop(heap)
            self._dead -= 1
        self.top = heap[0][0] if heap else NEVER


class Look(NamedTuple):
    """What one look at the clocks showed.

    Attributes:
        found: Clocks that are to be spoken of, and whether they are only near their limit.
        next: When to look again, nanoseconds since the epoch; `NEVER` if nothing will come.
    """

    found: list[tuple[Clock, bool]]
    next: int


def look(clocks: Iterable[Clock], said: set[str], now: int, warning: float) -> Look:
    """Reads clocks; each says at most two things, near its limit and past it."""
    found: list[tuple[Clock, bool]] = []
    then = NEVER
    for clock in clocks:
        near = f"{clock.reason}_near"
        if clock.reason in said:
            continue
        if clock.after() <= now:
            said.update((clock.reason, near))
            found.append((clock, False))
            continue
        then = min(then, clock.after())
        if not clock.warns or near in said:
            continue
        if clock.after(warning) <= now:
            said.add(near)
            found.append((clock, True))
        else:
            then = min(then, clock.after(warning))
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
        said: Codes of what was said about its limits.
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
        self.ticket: Ticket[object] | None = None

    def works(self, agent: str | None, now: int) -> bool:
        """Something of it began or ended."""
        self.last = max(self.last, now)
        if agent is None or agent == self.phase:
            return False
        self.phase, self.phase_since = agent, now
        self.phases += 1
        self.said.discard("same_phase")
        return self.phases > 1


class Runs:
    """Judges open runs, and adds up what those of each session took. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._most = settings.max_sessions
        self._idle = round(settings.stall_idle_s * 1e9)
        self._idle_near = round(settings.stall_idle_s * settings.tuning.stalls.warning * 1e9)
        self._spent: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()

    def look(self, run: Run, session: str | None, now: int) -> Look:
        """What there is to say about an open run, and when to look at it again."""
        spent, said = self._spent.get(session or "", (0, frozenset[str]()))
        found = look(
            self._clocks(run, spent), run.said | said, now, self._settings.tuning.stalls.warning
        )
        run.said.update(_codes(found))
        return found

    def phase_due(self, run: Run) -> int | None:
        """When a run in which a phase began is to be looked at; None if that is no matter."""
        return next(
            (clock.after() for clock in phase_clocks(self._settings, run.phase_since)), None
        )

    def idle_due(self, run: Run) -> int | None:
        """When a run in which nothing runs is to be looked at; None if that is no matter."""
        # In plain numbers: this is asked whenever a step ends.
        if not self._idle or "idle" in run.said:
            return None
        return run.last + (self._idle if "idle_near" in run.said else self._idle_near)

    def ended(self, run: Run, session: str | None, now: int) -> None:
        """A run ended: its time counts for the next runs of its session, of the newest sessions."""
        if session is None:
            return
        spent, said = self._spent.pop(session, (0, frozenset[str]()))
        overall = frozenset(code for code in run.said if code.startswith("overall"))
        self._spent[session] = (spent + max(now - run.opened.since, 0), said | overall)
        if len(self._spent) > self._most:
            self._spent.popitem(last=False)

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


def _codes(found: Look) -> set[str]:
    codes = {f"{clock.reason}_near" for clock, _ in found.found}
    return codes | {clock.reason for clock, near in found.found if not near}


_LONG_AGO: Final = 600 * 10**9
"""A start this far back, in nanoseconds, is told of a recording: nothing hangs by it."""


class ActiveSpan:
    """One open span.

    Attributes:
        view: The span; live views show what was set on it meanwhile.
        parent: The open span above it, as far as it is known.
        session: Its session, where the context named one.
        since: Since when it runs by the clock of the guard, nanoseconds since the epoch.
        agent: Name of the agent whose run it is part of, as far as that was told at a start.
        ended: Whether it has ended.
        runs: Whether it is the run of an agent or a workflow, as far as its start told.
        run: The outermost such run that it is part of; None if none is known.
        top: The topmost run that it is part of, or what may turn out to be one; itself, if it is
            that. None if none is known.
        told: Whether it said at its start what it is.
        holds: Whether it is a trace of an SDK, around any number of runs.
        entered: The sessions in which it was taken for a run.
        said: Codes of what was said about its limits.
        ticket: When it is to be looked at next; None if it is not.
        unreadable: Whether it could not be looked at: nobody tries again.
        call: The call that an adapter was making when it started; None for none.
        captured: Arguments and result that an adapter knows, for the guard only; None for none.
    """

    __slots__ = (
        "agent", "call", "captured", "ended", "entered", "holds", "parent", "run", "runs", "said",
        "session", "since", "ticket", "told", "top", "unreadable", "view",
    )  # fmt: skip

    def __init__(
        self, view: SpanView, parent: ActiveSpan | None, session: Session | None, since: int = 0
    ) -> None:
        # What has ended is passed over, so that a chain of turns does not keep them all.
        while parent is not None and parent.ended:
            parent = parent.parent
        if parent is not None:
            above: ActiveSpan | None = parent.parent
            while above is not None and above.ended:
                above = above.parent
            parent.parent = above
        self.view = view
        self.parent: ActiveSpan | None = parent
        self.session = session
        self.since = since
        self.agent: str | None = None if parent is None else parent.agent
        self.ended = False
        self.runs = False
        self.run: Run | None = None if parent is None else parent.run
        top = None if parent is None else parent.top
        self.top: ActiveSpan | None = None if top is None or top.ended else top
        self.told = True
        self.holds = False
        self.entered: tuple[Session, ...] = ()
        self.said: set[str] | None = None
        self.ticket: Ticket[object] | None = None
        self.unreadable = False
        self.call: CurrentCall | None = None
        self.captured: tuple[object, object] | None = None

    def complete(self, step: Step) -> None:
        """Puts on the step of the ended span what the span itself does not say."""
        if self.captured is not None:
            step.args = self.captured[0] if step.args is None else step.args
            step.outcome = self.captured[1] if step.outcome is None else step.outcome
        call = self.call
        if call is not None and step.kind is Kind.TOOL and step.name == call.tool:
            step.args = call.args if step.args is None else step.args

    def above(self) -> Iterator[ActiveSpan]:
        """The open spans above it, nearest first; at most 64, whatever the ids say."""
        place = self.parent
        for _ in range(64):
            if place is None:
                return
            yield place
            place = place.parent


def shown_at(start: int, now: int) -> int:
    """Since when a span runs: its start, but never later than it is shown.

    A start more than ten minutes back is that of a recorded span; it counts from when it is shown.
    """
    return now if now - start > _LONG_AGO else min(start, now)


class ToolSpans:
    """Which tool spans of a name call, of the newest 1024 names.

    Some conventions name the tool only when its span ends. Entries are only ever replaced, so that
    readers take no lock.
    """

    def __init__(self) -> None:
        self._tools: BoundedDict[str, str] = BoundedDict(1024)
        self._several: BoundedDict[str, None] = BoundedDict(1024)

    def learn(self, span: str, tool: str) -> None:
        """A span of a name was a call of a tool. The guard's lock is held."""
        known = self._tools.get(span)
        if known is None and len(span) < 512:
            self._tools[span] = tool
        elif known not in (None, tool):
            self._several[span] = None

    def first(self, span: str) -> str | None:
        """The tool that a span of a name called first; None if none did."""
        return self._tools.get(span)

    def only(self, span: str) -> str | None:
        """The tool that spans of a name call: empty for several, None if they call none."""
        return "" if span in self._several else self._tools.get(span)


class ActiveSpans:
    """The open spans of one guard. O(1) per span.

    A span that never ends goes when there is no more room.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[int, ActiveSpan] = OrderedDict()
        self._in_trace: Counter[int] = Counter()
        # By identity: an open span keeps the session that the context named for it.
        self._in_session: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[ActiveSpan]:
        return iter(self._open.values())

    def get(self, span_id: int | None) -> ActiveSpan | None:
        """The open span of an id."""
        return None if span_id is None else self._open.get(span_id)

    def has(self, opened: ActiveSpan) -> bool:
        """Whether this very span is still open."""
        return self._open.get(opened.view.span_id) is opened

    def uses(self, session: Session) -> bool:
        """Whether a span of a session is open."""
        return id(session) in self._in_session or not self._in_trace.keys().isdisjoint(
            session.traces
        )

    def add(self, opened: ActiveSpan) -> ActiveSpan | None:
        """Adds a span that started; returns the one that it replaces, or the oldest when full."""
        span_id = opened.view.span_id
        before = self._open.pop(span_id, None)
        self._open[span_id] = opened
        self._in_trace[opened.view.trace_id] += 1
        if opened.session is not None:
            self._in_session[id(opened.session)] += 1
        if before is None and len(self._open) > self._most:
            before = self._open.popitem(last=False)[1]
        if before is not None:
            self._uncount(before)
        return before

    def pop(self, span_id: int) -> ActiveSpan | None:
        """Removes a span that ended."""
        opened = self._open.pop(span_id, None)
        if opened is not None:
            opened.ended = True
            self._uncount(opened)
        return opened

    def _uncount(self, opened: ActiveSpan) -> None:
        counts = [(self._in_trace, opened.view.trace_id)]
        if opened.session is not None:
            counts.append((self._in_session, id(opened.session)))
        for counter, key in counts:
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]
