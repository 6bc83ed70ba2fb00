"""Open and closed escalations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard.errors import EscalationError

if TYPE_CHECKING:
    from otel_loopguard._control.flag import Flag
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.answers import Reply

# As many as sessions are known by default: each may wait for an answer.
_MOST_OPEN: Final = 10_000
# A late answer is refused with how the escalation ended: a day of them, at 40 an hour.
_MOST_OVER: Final = 1000


class Case:
    """One escalation and its outcome."""

    def __init__(self, escalation: Escalation, flag: Flag) -> None:
        self.escalation = escalation
        self.flag: Flag | None = flag  # None once it is over
        self.reply: Reply | None = None  # None while it is open
        self.over = 0  # when it ended, nanoseconds since the epoch

    def error(self) -> EscalationError:
        """The error for a second answer."""
        how, reply = "", self.reply
        if reply is not None:
            how = {
                "limit": f"nobody answered in time, and {reply.answer} was taken",
                "control": f"the session was changed by {reply.by}",
            }.get(reply.via, f"{reply.by} answered {reply.answer}")
        found = self.escalation
        return EscalationError(
            f"escalation {found.id!r} of session {found.session!r} is over: {how}"
        )


class EscalationRegistry:
    """The open escalations of one guard, 10,000 at most, and the newest 1000 that are over.

    Thread-safe, with a lock under which nothing else is done.
    """

    def __init__(self, cooldown_s: float) -> None:
        self._cooldown = int(cooldown_s * 1e9)
        self._open: dict[str, Case] = {}
        # The same by the flag of their session: every guard of a process is told of every flag.
        self._of_flag: dict[Flag, list[Case]] = {}
        self._over: BoundedDict[str, Case] = BoundedDict(_MOST_OVER)
        # By session: the newest case, and the newest that people were sent a message about.
        self._newest: BoundedDict[str, Case] = BoundedDict(_MOST_OPEN)
        self._sent: BoundedDict[str, Case] = BoundedDict(_MOST_OPEN)
        # Re-entrant: a finalizer may end a span, and that change a flag, while it is held.
        self._lock = new_lock()

    @property
    def due(self) -> int | None:
        """The end of the next open escalation, nanoseconds since the epoch; None without one."""
        with self._lock:
            return min((case.escalation.until for case in self._open.values()), default=None)

    def is_cooling(self, session: str, now: int, *, holds: bool) -> bool:
        """True if people were notified of a session recently, so that no message is sent again.

        A message that says that the session waits is sent all the same where the one before did
        not say so, or where somebody answered it.
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
        """Adds an escalation, of which people are `sent` a message; False if there is no room."""
        found, flag = case.escalation, case.flag
        with self._lock:
            if len(self._open) >= _MOST_OPEN:
                return False
            self._open[found.id] = self._newest[found.session] = case
            if sent:
                self._sent[found.session] = case
            if flag is not None:
                self._of_flag.setdefault(flag, []).append(case)
                flag.escalations += found.held
            return True

    def end(self, case: Case, reply: Reply, now: int) -> bool:
        """Ends an escalation; False if it was over already."""
        found, flag = case.escalation, case.flag
        with self._lock:
            if case.reply is not None:
                return False
            del self._open[found.id]
            if flag is not None:
                self._of_flag[flag].remove(case)
                if not self._of_flag[flag]:
                    del self._of_flag[flag]
                flag.escalations -= found.held
            case.reply, case.over, case.flag = reply, now, None
            self._over[found.id] = case
            return True

    def late(self, now: int) -> list[Case]:
        """The open escalations whose time is over."""
        return [case for case in self.cases() if case.escalation.until <= now]

    def of_flag(self, flag: Flag) -> list[Case]:
        """The open escalations of the session of a flag."""
        if flag not in self._of_flag:
            return []  # no lock, for nearly every change of a flag ends here
        with self._lock:
            return list(self._of_flag.get(flag, ()))

    def find(self, escalation_id: str) -> Case | None:
        """An escalation by its id, open or over; None if it is not known."""
        with self._lock:
            return self._open.get(escalation_id) or self._over.get(escalation_id)

    def newest_of(self, session: str) -> Case | None:
        """The newest escalation of a session, open or over; None if there is none."""
        with self._lock:
            return self._newest.get(session)

    def forget(self, session: str) -> None:
        """Forgets a session; open escalations stay open, and sent ones cool down."""
        if self._newest:
            with self._lock:
                self._newest.pop(session, None)

    def cases(self) -> list[Case]:
        """The open escalations, oldest first."""
        with self._lock:
            return list(self._open.values())
