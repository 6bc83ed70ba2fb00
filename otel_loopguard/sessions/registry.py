"""The sessions of one guard: which step belongs to which, bounded in number and age."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.context import session_key
from otel_loopguard._control.flag import NOTES
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import warn_blind
from otel_loopguard.core import Kind, Step
from otel_loopguard.sessions.active import NEVER
from otel_loopguard.sessions.session import Session

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.detectors import Registry
    from otel_loopguard.sessions.journal_worker import JournalStore, JournalWorker
    from otel_loopguard.settings import Settings

_TRACES_PER_SESSION: Final = 4
"""Traces that are remembered for each session: those of its newest turns."""
_OWN_SESSION = frozenset({Kind.TOOL, Kind.MODEL})
_AT_ONCE: Final = 16
"""Sessions evicted while the lock is held once: spans that end wait for it."""
_AGED_PER_NEW: Final = 2
"""Old ones that go with each new one: more go than come, and no step pays for many."""
_AT_HAND: Final = 100
"""Sessions that are kept as objects; what judges the others is put away until their next step."""
_REFUSED: Final = 16
"""Sessions in a row that cannot be packed, after which none is tried again."""
_KEPT: Final = 4096
"""Decisions that feedback finds."""
_IN_USE: Final = 60 * 1_000_000_000
"""Nanoseconds in which a session was used lately: longer than a model takes for a step."""
_LOOK_AGAIN: Final = 60 * 10**9
"""Seconds between looks at old sessions that were open or stopped by a person."""


class SessionRegistry:
    """Sessions by key and by trace. Not thread-safe: the guard's lock is held.

    Key of a session, first found wins: the one named by `otel_loopguard.session(...)`, the
    conversation or session id that a span carries, the trace id. An id that is learned late
    renames the session of its trace.

    With a journal store, every session keeps a journal there, and resumes from it.

    Where there are `max_sessions`, the one unused for longest is forgotten for each new one; one
    that is unused for `session_ttl_s` is forgotten by `expire`. One that is paused, or that a
    person stopped, goes last of all, and not by age; one with an open span goes just before those,
    and not by age.

    Attributes:
        of_trace: The session of a trace, if it is known.
        begun: Called with the key of each session that is new, or has got its final key; it must
            be quick.
        gone: Called with each session that is forgotten; it must be quick.
        evicted: Called before one is forgotten to make room; it must be quick.
        is_open: Whether a span of a session is open.
        due_at: No session is too old before this, nanoseconds since the epoch. May be read
            without the lock.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, registry: Registry, faults: InternalErrors, lock: threading.RLock,
        journal_store: JournalStore | None = None, *,
        live: bool = False, manual_journals: bool = False,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._registry = registry
        self._faults = faults
        self._lock = lock
        self._journal_worker: JournalWorker | None = None
        if journal_store is not None:
            from otel_loopguard.sessions import journal_worker  # noqa: PLC0415  # with a store only

            self._journal_worker = journal_worker.JournalWorker(
                settings, registry, faults, lock, journal_store, manual=manual_journals
            )
        self._most_traces = settings.max_sessions * _TRACES_PER_SESSION
        self._ttl = int(settings.session_ttl_s * 1e9)
        self._by_key: dict[str, Session] = {}
        # By last use. Spared sessions, open or stopped, have queues of their own, so that eviction
        # skips them.
        self._lately: OrderedDict[str, Session] = OrderedDict()
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._stopped: OrderedDict[str, Session] = OrderedDict()
        self._at_hand: OrderedDict[str, Session] = OrderedDict()
        self._refused = 0
        self._noticed = weakref.WeakMethod(self._thawed)
        # The last of `_lately` and `_at_hand`, if that was used twice in a row.
        self._newest: Session | None = None
        self._by_trace: OrderedDict[int, Session] = OrderedDict()
        self.of_trace: Callable[[int], Session | None] = self._by_trace.get
        self._explicit: BoundedDict[int, None] = BoundedDict(self._most_traces)
        # What runtimes asked for before anything was known of it.
        self.awaited: BoundedDict[str, None] = BoundedDict(settings.max_sessions)
        self.begun: Callable[[str], None] | None = None
        self.gone: Callable[[Session], None] | None = None
        self.evicted: Callable[[], None] | None = None
        self.is_open: Callable[[Session], bool] = lambda _session: False
        self.due_at = NEVER
        self._live = live

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def all(self) -> list[Session]:
        """The known sessions, least recently used first."""
        with self._lock:
            queues = (self._stopped, self._open, self._lately)
            return [session for queue in queues for session in queue.values()]

    def find(self, key: str) -> Session | None:
        """Returns the session of a key, if known."""
        return self._by_key.get(session_key(key))

    def named(self, key: str, now: int) -> Session:
        """The session of a final key, made if need be."""
        key = session_key(key)
        session = self._by_key.get(key)
        if session is None:
            session = self._add(self._new(key, named=True), now)
        session.named = True
        return self.use(session, now)

    def explicit(self, trace_id: int, key: str, now: int) -> Session:
        """Binds a trace to a session that the context names; ids on spans no longer count."""
        session = self._by_trace.get(trace_id)
        if session is not None and session.key == key and trace_id in self._explicit:
            return self.use(session, now)
        session = self.named(key, now)
        self._bind(trace_id, session)
        self._explicit[trace_id] = None
        return session

    def run(self, trace_id: int, key: str, now: int) -> Session | None:
        """The conversation in which an agent's run begins, with a trace of its own."""
        if trace_id in self._explicit:
            return None
        session = self._by_trace.get(trace_id)
        if session is None or session.key != key:
            session = self.bind(trace_id, key, now)
        return session

    def of_step(self, step: Step, now: int) -> Session:
        """The session a step belongs to, made if need be."""
        session = self._by_trace.get(step.trace_id)
        key = step.session
        if session is not None and (key is None or key == session.key):
            if session is self._newest:
                session.last_used = now
                return session
            return self.use(session, now)
        if key is None:
            session = self._add(self._new(f"{step.trace_id:032x}", named=False), now)
            self._bind(step.trace_id, session)
            return session
        if step.trace_id in self._explicit and session is not None:
            return self.use(session, now)
        if session is not None and session.named:
            # A sub-agent with a conversation of its own, inside the trace of its caller. Of an
            # agent or a node two instrumentations may name two ids; they stay with their trace.
            own = step.kind in _OWN_SESSION
            return self.named(key, now) if own else self.use(session, now)
        return self.bind(step.trace_id, key, now)

    def bind(self, trace_id: int, key: str, now: int) -> Session:
        """Says that a trace belongs to the session of a final key."""
        known, here = self._by_key.get(key), self._by_trace.get(trace_id)
        if known is None and here is not None and not here.named:
            self._rename(here, key)
            return self.use(here, now)
        session = known or self.named(key, now)
        self._bind(trace_id, session)
        return self.use(session, now)

    def apart(self, one: int, other: int) -> bool:
        """True if two traces are known to be of two sessions, each with a final key."""
        first, second = self._by_trace.get(one), self._by_trace.get(other)
        if first is None or second is None or first is second:
            return False
        return first.named and second.named

    def join(self, one: int, other: int) -> None:
        """Two traces turned out to be one run: both get the session that has a final key."""
        first, second = self._by_trace.get(one), self._by_trace.get(other)
        if first is None or first is second:
            if first is None and second is not None:
                self._bind(one, second)
            return
        if second is not None and second.named and not first.named:
            first = second
        self._bind(one, first)
        self._bind(other, first)

    def wrote(self, session: Session, *, now: bool = False) -> None:
        """Passes new entries of a session to its journal, if there is one."""
        if self._journal_worker is not None:
            self._journal_worker.wrote(session, now=now)

    def flush(self) -> None:
        """Writes pending journal entries now. The lock is not held."""
        if self._journal_worker is not None:
            self._journal_worker.flush()

    def recall(self, key: str, trace_id: int, now: int) -> None:
        """Restores a session from its journal. Blocks; the lock is not held.

        An id that is learned late renames the session of its trace, as in `of_step`.
        """
        with self._lock:
            here = self._by_trace.get(trace_id)
            if here is not None and not here.named:
                session = self.bind(trace_id, key, now)
            elif key == f"{trace_id:032x}":
                session = self._by_key.get(key) or self._add(self._new(key, named=False), now)
                self._bind(trace_id, session)
            else:
                session = self.named(key, now)
        if self._journal_worker is not None and self._journal_worker.read(session):
            with self._lock:
                if session.flag.raised:
                    # That was in a run: the one that begins after it is the user's next turn.
                    session.state.turns.began()

    def forget(self, key: str) -> None:
        """Forgets a session that is judged elsewhere."""
        session = self._by_key.get(key)
        if session is not None:
            self._forget(session)

    def close(self) -> None:
        """Writes pending journal entries and stops."""
        if self._journal_worker is not None:
            self._journal_worker.close()

    def _rename(self, session: Session, key: str) -> None:
        self._take_out(session.key)
        session.key, session.named = key, True
        session.flag.rename(key)
        self._put(session)
        self._begin(session)

    def _new(self, key: str, *, named: bool) -> Session:
        session = Session(
            key, self._settings, self._registry, self._faults, self._lock,
            named=named, live=self._live,
        )  # fmt: skip
        session.thawed = self._noticed
        _take_notes(session, key)
        return session

    def _begin(self, session: Session) -> None:
        if self.awaited and session.key in self.awaited:
            session.flag.asked = True
            del self.awaited[session.key]
        if self._journal_worker is not None:
            self._journal_worker.begin(session)
        if self.begun is not None:
            self.begun(session.key)

    def expire(self, now: int) -> list[Session]:
        """Forgets sessions that were unused for too long, a few of them."""
        aged = self._aged(now, _AT_ONCE)
        if aged:
            return aged
        self._look_again()
        aged = self._aged(now, _AT_ONCE)
        if not aged:
            oldest = next(iter(self._lately.values()), None)
            due = NEVER if oldest is None else oldest.last_used + self._ttl + 1
            spared = now + _LOOK_AGAIN if self._open or self._stopped else NEVER
            self.due_at = max(min(due, spared), now + 1)
        return aged

    def _aged(self, now: int, most: int) -> list[Session]:
        """Forgets the sessions that are too old, `most` at most."""
        found: list[Session] = []
        while self._lately and len(found) < most:
            oldest = next(iter(self._lately.values()))
            if now - oldest.last_used <= self._ttl:
                break
            if not self._spare(oldest):
                self._forget(oldest)
                found.append(oldest)
        return found

    def _look_again(self) -> None:
        """Puts sessions that are neither open nor stopped any more back, to go by age first."""
        for queue in (self._open, self._stopped):
            for key, session in tuple(queue.items()):
                wanted = self._queue_of(session)
                if wanted is queue:
                    continue
                del queue[key]
                wanted[key] = session
                if wanted is self._lately:
                    wanted.move_to_end(key, last=False)

    def _add(self, session: Session, now: int) -> Session:
        self._evict(now)
        session.last_used = now
        self._put(session)
        # Once it can be found: its past may arrive at once.
        self._begin(session)
        self._freeze_some()
        self.due_at = min(self.due_at, now + self._ttl + 1)
        return session

    def _freeze_some(self) -> None:
        """Freezes the least recently used sessions, if there are many."""
        # Two per new session: no step pays for packing many, and the number shrinks again where
        # many were thawed at once.
        for _ in range(2):
            if len(self._at_hand) <= _AT_HAND:
                return
            _, session = self._at_hand.popitem(last=False)
            if self._queue_of(session) is self._lately:
                # The results of a run that is over, which may be large.
                session.flag.drop_parts()
            if self._refused < _REFUSED:
                # A detector of the user's, or a judge, keeps all of them from being packed.
                self._refused = 0 if session.freeze() else self._refused + 1

    def _thawed(self, session: Session) -> None:
        """Marks a session as used again, by anybody. The lock is held."""
        if self._by_key.get(session.key) is session:
            self._at_hand[session.key] = session

    def _put(self, session: Session) -> None:
        key = session.key
        self._by_key[key] = self._lately[key] = self._at_hand[key] = session
        self._newest = None

    def _take_out(self, key: str) -> None:
        self._newest = None
        self._by_key.pop(key, None)
        for queue in (self._lately, self._open, self._stopped, self._at_hand):
            queue.pop(key, None)

    def _evict(self, now: int) -> None:
        """Makes room for one: the unused go by age, then the one unused for longest."""
        # A few: the others wait for the next one, or for `expire`.
        self._aged(now, _AGED_PER_NEW)
        while len(self._by_key) >= self._settings.max_sessions:
            queues = (self._lately, self._open, self._stopped)
            oldest = next(next(iter(queue.values())) for queue in queues if queue)
            if oldest.key not in self._lately or not self._spare(oldest):
                # A store knows it when it goes on.
                if self._journal_worker is None and now - oldest.last_used < _IN_USE:
                    warn_blind("sessions_evicted", self._settings.max_sessions)
                if self.evicted is not None:
                    self.evicted()
                self._forget(oldest)

    def _spare(self, session: Session) -> bool:
        """Puts a session whose turn it is to go apart, if it is open or stopped."""
        queue = self._queue_of(session)
        if queue is self._lately:
            return False
        del self._lately[session.key]
        self._newest = None
        queue[session.key] = session
        return True

    def _queue_of(self, session: Session) -> OrderedDict[str, Session]:
        if session.flag.waits_for_people:
            return self._stopped
        return self._open if self.is_open(session) else self._lately

    def _forget(self, session: Session) -> None:
        """Removes a session from every table. Its flag stays usable for its holders."""
        self._take_out(session.key)
        for trace_id in session.traces:
            self._by_trace.pop(trace_id, None)
            self._explicit.pop(trace_id, None)
        if self._journal_worker is not None:
            self._journal_worker.forget(session)
        if self.gone is not None:
            self.gone(session)
        session.traces.clear()

    def use(self, session: Session, now: int) -> Session:
        """Marks a session as used; returns the current session of its key."""
        standing = self._by_key.get(session.key)
        if standing is None:
            return self._add(session, now)
        standing.last_used = now
        if standing is self._newest:
            return standing
        if standing.key in self._lately:
            self._lately.move_to_end(standing.key)
            self._at_hand[standing.key] = standing
            self._at_hand.move_to_end(standing.key)
            self._newest = standing
        else:
            self._take_out(standing.key)
            self._put(standing)
        return standing

    def _bind(self, trace_id: int, session: Session) -> None:
        before = self._by_trace.get(trace_id)
        if before is not None:
            before.traces.pop(trace_id, None)
        self._by_trace[trace_id] = session
        _take_notes(session, f"{trace_id:032x}")
        session.traces[trace_id] = None
        self._by_trace.move_to_end(trace_id)
        if len(self._by_trace) > self._most_traces:
            gone, of = self._by_trace.popitem(last=False)
            of.traces.pop(gone, None)
            self._explicit.pop(gone, None)


class _Entry:
    __slots__ = ("false_alarm", "session")

    def __init__(self, session: Session) -> None:
        self.session = weakref.ref(session)
        self.false_alarm: bool | None = None


class DecisionIndex:
    """The newest 4096 decisions of a guard, with the feedback on them."""

    __slots__ = ("_entries", "feedback_counts")

    def __init__(self) -> None:
        self._entries: BoundedDict[str, _Entry] = BoundedDict(_KEPT)
        # How many are a false alarm (True) or right (False), by the latest feedback.
        self.feedback_counts: Counter[bool] = Counter()

    def add(self, decision_id: str, session: Session) -> None:
        """Takes a decision about a session."""
        self._entries[decision_id] = _Entry(session)

    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool:
        """Counts feedback on a decision; the last one wins."""
        entry = self._entries.get(decision_id)
        session = None if entry is None else entry.session()
        if entry is None or session is None:
            return False
        record = session.state.record
        if entry.false_alarm is not None:
            record.count_feedback(false_alarm=entry.false_alarm, times=-1)
            self.feedback_counts[entry.false_alarm] -= 1
        entry.false_alarm = false_alarm
        record.count_feedback(false_alarm=false_alarm)
        self.feedback_counts[false_alarm] += 1
        return True


def _take_notes(session: Session, key: str) -> None:
    """A session has what was remembered for it before its first step, under its key or a trace."""
    notes = NOTES.pop(key, None)
    if notes is not None:
        session.state.record.memory.adopt(notes)
