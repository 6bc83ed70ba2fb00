"""The part of a live guard that people meet: what is put before them, and their ways to it."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING

from otel_loopguard.desk import Desk, Doors
from otel_loopguard.escalation import Escalations
from otel_loopguard.faults import swallow
from otel_loopguard.hands import Hands

if TYPE_CHECKING:
    import threading

    from otel_loopguard.core import Decision
    from otel_loopguard.faults import Faults
    from otel_loopguard.opens import Opens
    from otel_loopguard.sessions import Session, Sessions
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


class People:
    """Escalations, desk and doors of one guard. Nothing here waits, or raises into a hook.

    A replay has no people: what it shows is long over.

    Args:
        settings: Settings of the guard.
        sessions: Its sessions.
        opens: Its open spans.
        lock: Its lock.
        faults: Where faults are counted.
        writer: Puts escalations into the store; None without one.

    Attributes:
        escalations: What is put before people.
        desk: Answers them.
        doors: The ways to the desk.
    """

    def __init__(  # noqa: PLR0913
        self, settings: Settings, sessions: Sessions, opens: Opens, *,
        lock: threading.RLock, faults: Faults, writer: Writer | None,
    ) -> None:  # fmt: skip
        process = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"
        self._faults = faults
        self.escalations = Escalations(
            settings, faults, sessions.find, process=process, writer=writer
        )
        self.desk = Desk(settings, sessions, lock, self.escalations, process)
        self.doors = Doors(settings, self.desk, faults)
        self._hands = Hands(opens, sessions, lock, faults)

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
