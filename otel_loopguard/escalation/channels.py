"""Where escalations are sent: a webhook, callbacks, the store."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard._control import escalation as people
from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.suppress import suppress_instrumentation_in_thread
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import Reply, reply_in
from otel_loopguard.escalation.payload import encoded

if TYPE_CHECKING:
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.registry import Case
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

_IDLE_S: Final = 5.0
_LONGEST_S: Final = 60.0

Deliver = Callable[["Escalation"], bool]
"""Delivers one escalation; False: try it again later."""


class DeliveryQueue:
    """A bounded queue in front of one channel, and the daemon thread that empties it.

    The thread starts with the first escalation and ends when it was idle for some seconds. What
    throws is counted, and not tried again. What hangs holds only what waits behind it.

    Attributes:
        settled: Escalations that were delivered, or refused for good.
        dropped: The others: no room, no try left, or over meanwhile.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Deliver, faults: InternalErrors, *, most: int, attempts: int = 1,
        retry_s: float = 1,
    ) -> None:  # fmt: skip
        self._name = name
        self._deliver = deliver
        self._faults = faults
        self._most = most
        self._attempts = attempts
        self._retry_s = retry_s
        self._number = 0
        self._waiting: list[tuple[float, int, int, Escalation]] = []
        self._work = threading.Condition(new_lock())
        self._running = False
        self.settled = 0
        self.dropped = 0

    def take(self, escalation: Escalation) -> bool:
        """Queues an escalation; False if there is no room."""
        with self._work:
            if len(self._waiting) >= self._most:
                self.dropped += 1
                return False
            self._push(time.monotonic(), 1, escalation)
            if self._running:
                self._work.notify()
                return True
            self._running = True
        thread = threading.Thread(target=self._run, name=f"loopguard-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as fault:
            # No thread can be had now, as when the interpreter ends: the next one tries again.
            self._running = False
            self._faults.note(self._name, fault)
        return True

    def _push(self, due: float, attempt: int, escalation: Escalation) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (due, self._number, attempt, escalation))

    def _run(self) -> None:
        suppress_instrumentation_in_thread()
        while (found := self._next()) is not None:
            attempt, escalation = found
            done = True
            with swallow(self._faults, self._name):
                done = self._deliver(escalation)
                self.settled += done
            if not done:
                self._again(attempt, escalation)

    def _next(self) -> tuple[int, Escalation] | None:
        """What is to be delivered next, waited for; None when the thread is to end."""
        idle_until = time.monotonic() + _IDLE_S
        with self._work:
            while True:
                now = time.monotonic()
                due = self._waiting[0][0] if self._waiting else idle_until
                if due > now:
                    self._work.wait(due - now)
                elif self._waiting:
                    _, _, attempt, escalation = heapq.heappop(self._waiting)
                    return attempt, escalation
                else:
                    self._running = False
                    return None

    def _again(self, attempt: int, escalation: Escalation) -> None:
        pause = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_S)
        over = time.time_ns() + pause * 1e9 >= escalation.until
        with self._work:
            if attempt >= self._attempts or over or len(self._waiting) >= self._most:
                self.dropped += 1
            else:
                self._push(time.monotonic() + pause, attempt + 1, escalation)


KIND: Final = "escalation"
"""Kind of the value that an escalation is in a store."""
_KEPT_S: Final = 86_400.0
_CALLBACKS: Final = 64

Answered = Callable[[str, Reply], object]


class Channels:
    """The channels of one guard. Nothing here waits for one of them.

    Attributes:
        webhook: The carrier of the webhook; None without one.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, answered: Answered, writer: Writer | None
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._answered = answered
        self._writer = writer
        # Re-entrant: a finalizer may end a span, and that send another one, while it is held.
        self._lock = new_lock()
        self._carriers: dict[int, tuple[people.Callback, DeliveryQueue]] = {}
        self.webhook = _webhook(settings, faults, answered) if settings.webhook_url else None

    def send(self, escalation: Escalation) -> None:
        """Sends an escalation to all; the store has it from `keep`."""
        if self.webhook is not None:
            self.webhook.take(escalation)
        for callback in people.callbacks()[:_CALLBACKS]:
            self._carrier(callback).take(escalation)

    def keep(self, case: Case) -> None:
        """Puts an escalation, as it stands now, where other processes find it: for a day."""
        if self._writer is not None:
            value = encoded(case_row(case))
            self._writer.put(KIND, case.escalation.id, value, _KEPT_S)

    def _carrier(self, callback: people.Callback) -> DeliveryQueue:
        known = set(map(id, people.callbacks()))
        with self._lock:
            for gone in self._carriers.keys() - known:
                del self._carriers[gone]
            found = self._carriers.get(id(callback))
            if found is None:
                carrier = DeliveryQueue(
                    "on_escalation", self._calling(callback), self._faults,
                    most=self._settings.tuning.escalation.queue,
                )  # fmt: skip
                found = self._carriers[id(callback)] = (callback, carrier)
        return found[1]

    def _calling(self, callback: people.Callback) -> Callable[[Escalation], bool]:
        def deliver(escalation: Escalation) -> bool:
            said = callback(escalation)
            try:
                reply = reply_in(said, "callback")
                if reply is not None:
                    self._answered(escalation.id, reply)
            except (EscalationError, PlanError) as error:
                logger.warning("on_escalation: its answer was not taken: %s", error)
            return True

        return deliver


def case_row(case: Case) -> dict[str, object]:
    """An escalation and how it stands, as one JSON object; `ended` is null while it is open."""
    reply = case.reply
    ended = None
    if reply is not None:
        ended = {
            "answer": None if reply.answer is None else reply.answer.value,
            "by": reply.by,
            "via": reply.via,
            "guidance": reply.guidance or None,
            "plan": [task.id for task in reply.plan] or None,
            "at": case.over,
        }
    return {**case.escalation.row(), "ended": ended, "written": time.time_ns()}


def _webhook(settings: Settings, faults: InternalErrors, answered: Answered) -> DeliveryQueue:
    try:
        from otel_loopguard.escalation.webhook import Webhook  # noqa: PLC0415  # httpx is an extra
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        msg = "webhook_url (LOOPGUARD_WEBHOOK_URL) needs: pip install 'otel-loopguard[webhook]'"
        raise LoopGuardSettingsError(msg) from None
    return DeliveryQueue(
        "webhook",
        Webhook(settings, answered).deliver,
        faults,
        most=settings.tuning.escalation.queue,
        attempts=settings.webhook_attempts,
        retry_s=settings.tuning.escalation.webhook_retry_s,
    )
