"""The sessions of one guard: which step belongs to which, bounded in number and age."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.control import Flag
from otel_loopguard.core import Kind
from otel_loopguard.detectors import HandoffRepeat, detectors
from otel_loopguard.faults import attempt
from otel_loopguard.identity import Observer
from otel_loopguard.policy import Ladder

if TYPE_CHECKING:
    import threading

    from otel_loopguard.core import Detection, Evidence, Step
    from otel_loopguard.detectors import Detector
    from otel_loopguard.faults import Faults
    from otel_loopguard.policy import Verdict
    from otel_loopguard.settings import Settings

_TRACES_PER_SESSION = 4
_OWN_SESSION = frozenset({Kind.TOOL, Kind.MODEL})


_SILENT_TURNS = 8
"""Model calls in one trace, after a deny and without a tool call, that end in an abort."""


class Finding(NamedTuple):
    """What the ladder of a session says about one step.

    Attributes:
        verdict: What follows.
        call: Key of the call concerned; None if its arguments are not known.
    """

    verdict: Verdict
    call: int | None


class Session:
    """All steps of one conversation or run, as far as they still matter.

    Attributes:
        key: Its key. A trace id (32 hex digits) until a span names a conversation or session.
        named: Whether the key is final.
        steps: How many canonical steps were counted.
        last_used: When it was used last, nanoseconds since the epoch.
        lock: The guard's lock, held while its steps are judged. One for all: a finalizer that ends
            a span inside of one lock must never wait for another.
        observer: Turns its tool calls into evidence.
        detectors: What looks at the evidence.
        handoffs: What looks at hand-offs.
        ladder: What remembers the loops.
        flag: What its runtime sees.
        run: Trace of the agent run that began last in it; 0 if none was seen to begin.
        troubled: Whether anything was ever detected in it.
    """

    __slots__ = (
        "_asked_in", "_cleared", "_exempt", "_faults", "_settings", "_silent_turns", "detectors",
        "flag", "handoffs", "key", "ladder", "last_used", "lock", "named", "observer", "run",
        "steps", "troubled",
    )  # fmt: skip

    def __init__(
        self, key: str, settings: Settings, faults: Faults, lock: threading.RLock, *, named: bool
    ) -> None:
        self.key = key
        self.named = named
        self.steps = 0
        self.troubled = False
        self.run = 0
        self.last_used = 0
        self.lock = lock
        self._faults = faults
        self._cleared = 0
        self._settings = settings
        self.observer = Observer(settings)
        self.detectors = detectors(settings)
        self.handoffs = HandoffRepeat()
        self.ladder = Ladder(settings)
        self.flag = Flag(key, settings.pause_limit_s)
        self._exempt = settings.exempt_tools
        self._silent_turns = 0
        self._asked_in = 0

    def take(self, step: Step) -> tuple[int, Finding | None]:
        """Counts a canonical step and judges it. Its lock is held.

        Returns:
            The index of the step within the session, and what follows if anything new does.
        """
        index = self.steps
        self.steps += 1
        if self._cleared != self.flag.cleared:
            self._start_over()
        if step.kind is Kind.TOOL:
            self._silent_turns = 0
            return index, self._judged(step)
        if step.kind is Kind.MODEL:
            self.observer.model_step(step)
            return index, self._asked(step) if self.flag.stops else None
        if step.kind is Kind.HANDOFF:
            return index, self._handed(step)
        if step.kind is Kind.OTHER and step.name == "user":
            self.user_turn()
        return index, None

    def _judged(self, step: Step) -> Finding | None:
        evidence = self.observer.evidence(step)
        if step.name in self._exempt:
            return None
        call, number = evidence.call, evidence.number
        if self.troubled and evidence.error and call and self.ladder.denies(call):
            return _finding(self.ladder.defied(call, evidence.tool, number), call)
        found = self._detections(evidence)
        if found:
            self.troubled = True
            return _finding(self.ladder.judge(found, number), call)
        if self.troubled:
            self._calm(call, number)
        return None

    def _detections(self, evidence: Evidence) -> list[Detection]:
        """What the detectors find; one that throws is counted, and the others go on."""
        found: list[Detection] = []
        for detector in self.detectors:
            seen = attempt(self._faults, detector.name, detector.observe, evidence)
            if seen is not None:
                found.append(seen)
        return found

    def _start_over(self) -> None:
        """Somebody let the session go on: its loops are new loops."""
        self._cleared = self.flag.cleared
        self.ladder = Ladder(self._settings)
        self.user_turn()

    def _handed(self, step: Step) -> Finding | None:
        handoff = self.observer.handoff(step)
        found = None if handoff is None else self.handoffs.observe(handoff)
        if found is None:
            return None
        self.troubled = True
        return _finding(self.ladder.judge([found], self.observer.calls), None)

    def _asked(self, step: Step) -> Finding | None:
        """A model is asked again in a session that is denied: refusals may leave no span."""
        self._silent_turns = self._silent_turns + 1 if step.trace_id == self._asked_in else 1
        self._asked_in = step.trace_id
        if self._silent_turns < _SILENT_TURNS:
            return None
        return _finding(self.ladder.unheeded(self._silent_turns, self.observer.calls), None)

    def _calm(self, call: int | None, number: int) -> None:
        """A call outside of every loop takes a hint or a deny down again."""
        self.ladder.fade(number)
        if self.flag.raised and not self.ladder.knows(call):
            self.flag.lower()

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        for detector in self.detectors:
            attempt(self._faults, detector.name, _turn, detector)
        self.handoffs.user_turn()
        self.ladder.user_turn()


def _turn(detector: Detector) -> None:
    detector.user_turn()


def _finding(verdict: Verdict | None, call: int | None) -> Finding | None:
    return None if verdict is None else Finding(verdict, call)


class Sessions:
    """Sessions by key and by trace. Not thread-safe: the guard's lock is held.

    Key of a session, first found wins: the one named by `otel_loopguard.session(...)`, the
    conversation or session id that a span carries, the trace id. An id that is learned late
    renames the session of its trace.
    """

    def __init__(self, settings: Settings, faults: Faults, lock: threading.RLock) -> None:
        self._settings = settings
        self._faults = faults
        self._lock = lock
        self._ttl = int(settings.session_ttl_s * 1e9)
        self._by_key: OrderedDict[str, Session] = OrderedDict()
        self._by_trace: OrderedDict[int, Session] = OrderedDict()
        self._explicit: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: str) -> Session | None:
        """The session of a key, if it is known."""
        return self._by_key.get(key)

    def of_trace(self, trace_id: int) -> Session | None:
        """The session of a trace, if it is known."""
        return self._by_trace.get(trace_id)

    def named(self, key: str, now: int) -> Session:
        """The session of a final key, made if need be."""
        session = self._by_key.get(key)
        if session is None:
            session = self._add(self._new(key, named=True), now)
        session.named = True
        return self._used(session, now)

    def explicit(self, trace_id: int, key: str, now: int) -> Session:
        """Binds a trace to a session that the context names; ids on spans no longer count."""
        session = self.named(key, now)
        self._bind(trace_id, session)
        self._explicit[trace_id] = None
        if len(self._explicit) > self._most_traces:
            self._explicit.popitem(last=False)
        return session

    def turn(self, trace_id: int, key: str | None, now: int) -> None:
        """An agent's run begins with a trace of its own: in a conversation, the user's next turn.

        Loops of the turn before weigh half, and what the policy aborted may go on.
        """
        if key is None or trace_id in self._explicit:
            return
        session = self._by_trace.get(trace_id)
        if session is None or session.key != key:
            session = self.bind(trace_id, key, now)
        if session.run not in (0, trace_id):
            if session.flag.control.decision is not None:
                session.flag.clear()
            session.user_turn()
        session.run = trace_id

    def used(self, session: Session, now: int) -> Session:
        """Marks a session as used, and gives the one that stands for its key."""
        return self._used(session, now)

    def of_step(self, step: Step, now: int) -> Session:
        """The session a step belongs to, made if need be."""
        session = self._by_trace.get(step.trace_id)
        key = step.session
        if session is not None and (key is None or key == session.key):
            return self._used(session, now)
        if key is None:
            session = self._add(self._new(f"{step.trace_id:032x}", named=False), now)
            self._bind(step.trace_id, session)
            return session
        if step.trace_id in self._explicit and session is not None:
            return self._used(session, now)
        if session is not None and session.named:
            # A sub-agent with a conversation of its own, inside the trace of its caller. Of an
            # agent or a node two instrumentations may name two ids; they stay with their trace.
            own = step.kind in _OWN_SESSION
            return self.named(key, now) if own else self._used(session, now)
        return self.bind(step.trace_id, key, now)

    def bind(self, trace_id: int, key: str, now: int) -> Session:
        """Says that a trace belongs to the session of a final key."""
        known, here = self._by_key.get(key), self._by_trace.get(trace_id)
        if known is None and here is not None and not here.named:
            self._rename(here, key)
            return self._used(here, now)
        session = known or self.named(key, now)
        self._bind(trace_id, session)
        return self._used(session, now)

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

    def _rename(self, session: Session, key: str) -> None:
        self._by_key.pop(session.key, None)
        session.key, session.named = key, True
        session.flag.rename(key)
        self._by_key[key] = session

    def _new(self, key: str, *, named: bool) -> Session:
        return Session(key, self._settings, self._faults, self._lock, named=named)

    def _add(self, session: Session, now: int) -> Session:
        self._evict(now)
        session.last_used = now
        self._by_key[session.key] = session
        return session

    def _evict(self, now: int) -> None:
        """Makes room for one: the unused go by age, then the one unused for longest."""
        while self._by_key:
            oldest = next(iter(self._by_key.values()))
            full = len(self._by_key) >= self._settings.max_sessions
            if not full and now - oldest.last_used <= self._ttl:
                return
            self._by_key.popitem(last=False)

    def _used(self, session: Session, now: int) -> Session:
        standing = self._by_key.get(session.key)
        if standing is None:
            return self._add(session, now)
        session = standing
        session.last_used = now
        self._by_key.move_to_end(session.key)
        return session

    def _bind(self, trace_id: int, session: Session) -> None:
        self._by_trace[trace_id] = session
        self._by_trace.move_to_end(trace_id)
        if len(self._by_trace) > self._most_traces:
            gone, _ = self._by_trace.popitem(last=False)
            self._explicit.pop(gone, None)

    @property
    def _most_traces(self) -> int:
        return self._settings.max_sessions * _TRACES_PER_SESSION
