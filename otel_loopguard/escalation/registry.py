"""Open and closed escalations, and their time limits."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard._util.clock import now, ticks
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import Signal, new_lock
from otel_loopguard.errors import EscalationError

if TYPE_CHECKING:
    from otel_loopguard._control.flag import Flag
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.answers import Reply

_OPEN: Final = 10_000
_OVER: Final = 1000
_COOLING: Final = 10_000
_NEVER: Final = 2**63 - 1


@dataclass(slots=True)
class Case:
    """One escalation and what became of it.

    Attributes:
        escalation: The escalation.
        flag: Flag of its session; None once it is over.
        reply: How it ended; None while it is open.
        over: When it ended, nanoseconds since the epoch; 0 while it is open.
    """

    escalation: Escalation
    flag: Flag | None
    reply: Reply | None = None
    over: int = 0


class EscalationRegistry:
    """The open escalations of one guard, 10,000 at most, and the newest 1000 that are over.

    Thread-safe, with a lock that nothing else is done under. The newest one of 10,000 sessions is
    known by the session.

    Args:
        cooldown_s: Seconds after a message in which no other one about its session is sent.

    Attributes:
        refused: Escalations for which there was no room.
    """

    def __init__(self, cooldown_s: float) -> None:
        self._cooldown = int(cooldown_s * 1e9)
        self._open: OrderedDict[str, Case] = OrderedDict()
        self._over: OrderedDict[str, Case] = OrderedDict()
        self._sent: OrderedDict[str, Case] = OrderedDict()
        self._newest: OrderedDict[str, Case] = OrderedDict()
        # Re-entrant: a finalizer may end a span, and that change a flag, while it is held.
        self._lock = new_lock()
        self.refused = 0

    @property
    def any_open(self) -> bool:
        """Whether any escalation is open."""
        return bool(self._open)

    @property
    def due(self) -> int:
        """When the next one is over without an answer, nanoseconds since the epoch."""
        with self._lock:
            return min((case.escalation.until for case in self._open.values()), default=_NEVER)

    def cools(self, session: str, now: int, *, holds: bool) -> bool:
        """Whether people heard of a session not long ago, so that no message is sent again.

        A message that says that the session waits is sent all the same where the one before did
        not say so, or where somebody answered it.

        Args:
            session: Key of the session.
            now: Nanoseconds since the epoch.
            holds: Whether the session is held.
        """
        if not self._sent:
            return False
        with self._lock:
            sent = self._sent.get(session)
            if sent is None or now - sent.escalation.at >= self._cooldown:
                return False
            unheard = sent.reply is None or sent.reply.via == "limit"
            return not holds or (sent.escalation.held and unheard)

    def open(self, case: Case, *, sent: bool) -> bool:
        """Takes a new escalation; False if there is no room.

        Args:
            case: The escalation.
            sent: Whether people are sent a message about it.
        """
        found = case.escalation
        with self._lock:
            if len(self._open) >= _OPEN:
                self.refused += 1
                return False
            self._open[found.id] = self._newest[found.session] = case
            self._newest.move_to_end(found.session)
            if len(self._newest) > _COOLING:
                self._newest.popitem(last=False)
            if sent:
                self._sent[found.session] = case
                self._sent.move_to_end(found.session)
                if len(self._sent) > _COOLING:
                    self._sent.popitem(last=False)
            return True

    def settle(self, escalation_id: str, reply: Reply, now: int) -> Case:
        """Ends an open escalation.

        Args:
            escalation_id: Its id.
            reply: How it ends.
            now: Nanoseconds since the epoch.

        Raises:
            EscalationError: It is not known here, or over.
        """
        with self._lock:
            case = self._open.get(escalation_id)
            if case is None:
                raise self._gone(escalation_id)
            return self._end(case, reply, now)

    def settle_if(self, case: Case, reply: Reply, now: int) -> bool:
        """Ends an escalation if it is still open; whether it was."""
        with self._lock:
            if case.reply is not None:
                return False
            self._end(case, reply, now)
            return True

    def late(self, now: int) -> list[Case]:
        """The open escalations whose time is over."""
        with self._lock:
            return [case for case in self._open.values() if case.escalation.until <= now]

    def of_flag(self, flag: Flag) -> list[Case]:
        """The open escalations of the session of a flag."""
        with self._lock:
            return [case for case in self._open.values() if case.flag is flag]

    def find(self, escalation_id: str) -> Case | None:
        """An escalation by its id, open or over; None if it is not known."""
        with self._lock:
            return self._open.get(escalation_id) or self._over.get(escalation_id)

    def newest_of(self, session: str) -> Case | None:
        """The newest escalation of a session, open or over; None if there is none."""
        with self._lock:
            return self._newest.get(session)

    def forget(self, session: str) -> None:
        """A session is known no more; what is open stays open, and what was sent cools down.

        Args:
            session: Its key.
        """
        if not self._newest:
            return
        with self._lock:
            self._newest.pop(session, None)

    def cases(self) -> list[Case]:
        """The open escalations, oldest first."""
        with self._lock:
            return list(self._open.values())

    def _end(self, case: Case, reply: Reply, now: int) -> Case:
        del self._open[case.escalation.id]
        case.reply, case.over, case.flag = reply, now, None
        self._over[case.escalation.id] = case
        if len(self._over) > _OVER:
            self._over.popitem(last=False)
        return case

    def _gone(self, escalation_id: str) -> EscalationError:
        case = self._over.get(escalation_id)
        if case is None or case.reply is None:
            msg = f"there is no escalation {escalation_id!r:.100} here"
            return EscalationError(msg)
        reply = case.reply
        how = {
            "limit": f"nobody answered in time, and {reply.answer} was taken",
            "control": f"the session was changed by {reply.by}",
        }.get(reply.via, f"{reply.by} answered {reply.answer}")
        msg = f"escalation {escalation_id!r} of session {case.escalation.session!r} is over: {how}"
        return EscalationError(msg)


_LONGEST_S: Final = 5.0
"""The machine's clock may be set, and sleeps with the machine: what is due is asked again."""


class Watched(Protocol):
    """Has something that ends by itself."""

    @property
    def due(self) -> int | None:
        """When to call `over` next, nanoseconds since the epoch; None: not at all."""
        ...

    def over(self, now: int) -> None:
        """Ends whatever is over."""
        ...


class EscalationTimeouts:
    """Calls `over` when something is due. The daemon thread holds the owner weakly."""

    def __init__(self, owner: Watched, faults: InternalErrors) -> None:
        self._owner = weakref.ref(owner)
        self._faults = faults
        self._lock = new_lock()
        self._work = Signal()
        self._running = False
        ticks(self)

    def tick(self) -> None:
        """Ends what is over, on the calling thread; a test does, that moves the clock."""
        owner = self._owner()
        if owner is not None:
            with swallow(self._faults, "escalation"):
                owner.over(now())

    def wake(self) -> None:
        """Says that something is new; starts the thread if there is none."""
        with self._lock:
            self._work.set()
            if self._running:
                return
            self._running = True
        thread = threading.Thread(target=self._run, name="loopguard-escalations", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:
            self._running = False
            self._faults.note("escalation", fault)

    def _run(self) -> None:
        wait_s: float | None = 0.0
        while (wait_s := self._turn(wait_s)) is not None:
            pass

    def _turn(self, wait_s: float) -> float | None:
        """Waits, then ends what is over; gives the next wait in seconds, or None to end."""
        self._work.wait(wait_s)
        with self._lock:
            self._work.clear()
            owner = self._owner()
            if owner is None:
                self._running = False
                return None
        with swallow(self._faults, "escalation"):
            owner.over(now())
        with self._lock:
            due = owner.due
            if due is None and not self._work.is_set():
                self._running = False
                return None
        if due is None:
            return 0.0
        return min(max((due - now()) / 1e9, 0.0), _LONGEST_S)
