"""What people and runtimes ask a guard about a session, and tell it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.control import Flag
    from otel_loopguard.reports import Context, Ledger, Report, Topic
    from otel_loopguard.sessions import Sessions


class SessionKeeper:
    """The part of a guard that `otel_loopguard.control` talks to; it knows sessions by their key.

    All of it may be called from any thread.
    """

    _lock: threading.RLock
    _sessions: Sessions
    _ledger: Ledger

    def flag_of(self, session: str) -> Flag | None:
        """The flag of a session by its key; None if it is not known."""
        found = self._sessions.find(session)
        return None if found is None else found.flag

    def flag_in(self, trace_id: int) -> Flag | None:
        """The flag of the session of a trace; None if it is not known."""
        found = self._sessions.of_trace(trace_id)
        return None if found is None else found.flag

    def report(self, session: str) -> Report | None:
        """What a session has come to; None if it is not known.

        Args:
            session: Key of the session.
        """
        with self._lock:
            found = self._sessions.find(session)
            return None if found is None else found.report()

    def context(self, session: str) -> Context | None:
        """The long-term context of a session (C17); None if it is not known.

        Args:
            session: Key of the session.
        """
        with self._lock:
            found = self._sessions.find(session)
            return None if found is None else found.record.memory.context()

    def remember(self, session: str, topic: Topic, text: str) -> bool:
        """Adds to the long-term context of a session; False if it is not known.

        Args:
            session: Key of the session.
            topic: `insight`, `file`, `pattern` or `avoided`.
            text: What to keep; of longer text the first 200 characters.

        Raises:
            ValueError: There is no such topic.
        """
        with self._lock:
            found = self._sessions.find(session)
            if found is not None:
                found.record.memory.note(topic, text)
            return found is not None

    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool:
        """Counts in the report whether a decision was right (A10); nothing else changes.

        Args:
            decision_id: `Decision.id`; the newest 4096 are known.
            false_alarm: Whether it was wrong. Who speaks last is right.

        Returns:
            False if the decision or its session is not known any more.
        """
        with self._lock:
            return self._ledger.feedback(decision_id, false_alarm=false_alarm)
