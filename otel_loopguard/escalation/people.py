"""The part of a live guard that people meet: what is put before them, and their ways to it."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING

from otel_loopguard._util.errors import swallow
from otel_loopguard.escalation.admin import AdminHandlers, Listeners
from otel_loopguard.escalation.audit import AuditTrail
from otel_loopguard.escalation.escalations import Escalations

if TYPE_CHECKING:
    import threading

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session, SessionRegistry
    from otel_loopguard.sessions.active import ActiveSpans
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


class EscalationService:
    """Escalations, desk and doors of one guard. Nothing here waits, or raises into a hook.

    A replay has no people: what it shows is long over.

    Attributes:
        escalations: What is put before people.
        desk: Answers them.
        doors: The ways to the desk.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, sessions: SessionRegistry, opens: ActiveSpans, *,
        lock: threading.RLock, faults: InternalErrors, writer: Writer | None,
    ) -> None:  # fmt: skip
        process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"
        self._faults = faults
        self.escalations = Escalations(
            settings, faults, sessions.find, process=process, writer=writer
        )
        self.desk = AdminHandlers(settings, sessions, lock, self.escalations, process)
        self.doors = Listeners(settings, self.desk, faults)
        self._hands = AuditTrail(opens, sessions, lock, faults)

    def decided(self, session: Session, decision: Decision) -> None:
        """A decision took effect: people may have to hear of it. No lock is held."""
        with swallow(self._faults, "escalation"):
            self.escalations.decided(session, decision)

    def seen(self) -> None:
        """There is a step: the doors are opened by the first one."""
        if self.doors.closed:
            with swallow(self._faults, "desk"):
                self.doors.open()

    def close(self) -> None:
        """Closes the doors."""
        self.doors.close()
