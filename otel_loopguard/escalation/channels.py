"""Where escalations are sent: a webhook, callbacks, the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard._control import escalation as people
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core.escalation import Escalation
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import Answered, take_reply
from otel_loopguard.escalation.payload import encoded

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.escalation.registry import Case
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

_LONGEST_S: Final = 60.0

Deliver = Callable[["Escalation"], bool]
"""Delivers one escalation; False: try it again later."""


class DeliveryQueue:
    """Delivers escalations to one channel in the background, with retries.

    What raises is counted, and not tried again. What hangs holds only what waits behind it.
    """

    def __init__(  # noqa: PLR0913
        self, name: str, deliver: Deliver, faults: InternalErrors, *, most: int, attempts: int = 1,
        retry_s: float = 1,
    ) -> None:  # fmt: skip
        self._deliver = deliver
        self._attempts = attempts
        self._retry_s = retry_s
        self._worker = BackgroundWorker[tuple[int, Escalation]](
            name, self._attempt, faults, maximum=most
        )
        self.settled = 0  # delivered, or refused for good
        self.dropped = 0  # no room, no try left, or over meanwhile

    def put(self, escalation: Escalation) -> bool:
        """Queues an escalation; False if there is no room."""
        taken = self._worker.put((1, escalation))
        self.dropped += not taken
        return taken

    def flush(self, limit_s: float) -> bool:
        """Waits until all is delivered or given up, so many seconds at most; whether it is."""
        return self._worker.flush(limit_s)

    def _attempt(self, item: tuple[int, Escalation]) -> None:
        attempt, escalation = item
        if self._deliver(escalation):
            self.settled += 1
            return
        pause = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_S)
        over = time.time_ns() + pause * 1e9 >= escalation.until
        if (
            attempt >= self._attempts
            or over
            or not self._worker.put((attempt + 1, escalation), pause)
        ):
            self.dropped += 1


KIND: Final = "escalation"
"""Kind of the value that an escalation is in a store."""
_KEPT_S: Final = 86_400.0
_CALLBACKS: Final = 64


class Channels:
    """The channels of one guard. Nothing here waits for one of them."""

    def __init__(
        self, settings: Settings, faults: InternalErrors, answered: Answered, writer: Writer | None
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._answered = answered
        self._writer = writer
        # Re-entrant: a finalizer may end a span, and that send another one, while it is held.
        self._lock = new_lock()
        self._queues: dict[int, tuple[people.Callback, DeliveryQueue]] = {}
        self.webhook = _webhook(settings, faults, answered) if settings.webhook_url else None

    def send(self, escalation: Escalation) -> None:
        """Sends an escalation to all; the store has it from `keep`."""
        if self.webhook is not None:
            self.webhook.put(escalation)
        for callback in people.callbacks()[:_CALLBACKS]:
            self._queue(callback).put(escalation)

    def keep(self, case: Case) -> None:
        """Stores the state of an escalation for other processes, for a day."""
        if self._writer is not None:
            value = encoded(case_row(case))
            self._writer.put(KIND, case.escalation.id, value, _KEPT_S)

    def _queue(self, callback: people.Callback) -> DeliveryQueue:
        known = set(map(id, people.callbacks()))
        with self._lock:
            for gone in self._queues.keys() - known:
                del self._queues[gone]
            if id(callback) not in self._queues:
                deliver = partial(_call_back, callback, self._answered)
                most = self._settings.tuning.escalation.queue
                queue = DeliveryQueue("on_escalation", deliver, self._faults, most=most)
                self._queues[id(callback)] = (callback, queue)
            return self._queues[id(callback)][1]


def _call_back(callback: people.Callback, answered: Answered, escalation: Escalation) -> bool:
    """Calls a callback; what it returns may be the answer."""
    said = callback(escalation)
    try:
        take_reply(escalation, said, "callback", answered)
    except (EscalationError, PlanError) as error:
        logger.warning("on_escalation: its answer was not taken: %s", error)
    return True


def case_row(case: Case) -> dict[str, object]:
    """An escalation and its state, as one JSON object; `ended` is null while it is open."""
    reply = case.reply
    ended = None
    if reply is not None:
        ended = {
            "answer": None if reply.answer is None else reply.answer.value,
            "by": reply.by,
            "via": reply.via,
            "guidance": reply.guidance or None,
            "plan": [task.id for task in reply.plan] or None,
            "limit": reply.limit,
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
