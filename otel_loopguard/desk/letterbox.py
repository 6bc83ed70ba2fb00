"""Tells the directory of this process's sessions, and answers what comes to its letter box."""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from otel_loopguard.desk.wire import MOST_REPLY, refusal
from otel_loopguard.errors import StoreError
from otel_loopguard.escalation.encoding import encoded
from otel_loopguard.faults import swallow
from otel_loopguard.locks import Signal
from otel_loopguard.quiet import untraced_thread

if TYPE_CHECKING:
    from otel_loopguard.desk.desk import Desk
    from otel_loopguard.desk.directory import Directory
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings

_FIRST_PAUSE_S: Final = 0.2


class Letterbox:
    """One daemon thread between a desk and the directory; it ends with the desk.

    Where the store does not answer it waits, at most for `store_retry_s`, and says everything anew
    as soon as it does.

    Args:
        settings: Settings of the guard.
        desk: Answers requests; held weakly.
        directory: The directory.
        faults: Where faults are counted.
    """

    def __init__(
        self, settings: Settings, desk: Desk, directory: Directory, faults: Faults
    ) -> None:
        self._heartbeat_s = settings.desk_heartbeat_s
        self._longest_s = settings.store_retry_s
        self._process = desk.process
        self._desk = weakref.ref(desk)
        self._directory = directory
        self._faults = faults
        self._sent: dict[str, bytes] = {}
        self._next = 0.0
        self._ended = Signal()

    def start(self) -> None:
        """Starts the thread."""
        try:
            threading.Thread(target=self._run, name="loopguard-desk", daemon=True).start()
        except RuntimeError as fault:
            self._faults.note("desk", fault)

    def close(self) -> None:
        """Ends the thread, within about a second; it takes the process out of the directory."""
        self._ended.set()

    def _run(self) -> None:
        untraced_thread()
        pause_s = _FIRST_PAUSE_S
        while not self._ended.is_set() and self._desk() is not None:
            well = False
            with swallow(self._faults, "desk"):
                well = self._works()
            if well:
                pause_s = _FIRST_PAUSE_S
                continue
            self._sent = {}
            self._next = 0.0
            self._ended.wait(pause_s)
            pause_s = min(2 * pause_s, self._longest_s)
        with suppress(StoreError):
            self._directory.withdraw(self._process)
            self._directory.close()

    def _works(self) -> bool:
        """One turn; False if the store does not answer: what writes to it says so and why."""
        try:
            self._turn()
        except StoreError:
            return False
        return True

    def _turn(self) -> None:
        if time.monotonic() >= self._next:
            self._report()
            self._next = time.monotonic() + self._heartbeat_s
        found = self._directory.next_request(self._process)
        desk = self._desk()
        if found is None or desk is None:
            return
        reply_to, request = found
        reply = refusal("failed", "the process could not do it; its log says why")
        with swallow(self._faults, "desk"):
            reply = desk.reply(request)
        if len(encoded(reply)) > MOST_REPLY:
            reply = refusal("too_large", "the reply is too large")
        self._directory.send_reply(reply_to, reply)
        self._next = 0.0

    def _report(self) -> None:
        """Sends the rows that changed since the last report, and the keys that are gone."""
        desk = self._desk()
        if desk is None:
            return
        rows = {row["session"]: encoded(row) for row in desk.rows()}
        changed = {key: row for key, row in rows.items() if self._sent.get(key) != row}
        gone = [key for key in self._sent if key not in rows]
        self._directory.publish(self._process, changed, gone)
        self._sent = rows
