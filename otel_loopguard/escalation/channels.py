"""Where escalations are sent: a webhook, callbacks, the store."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.callbacks import ESCALATIONS
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import Answered, take_reply
from otel_loopguard.escalation.payload import encoded

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.registry import Case
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

KIND: Final = "escalation"
"""Kind of the value that an escalation is in a store."""
# Whoever was away for a night finds it.
_KEPT_S: Final = 86_400.0
# Between two posts of a webhook: an address that is down for minutes is tried once a minute.
_LONGEST_S: Final = 60.0


class Channels:
    """The channels of one guard. Nothing here waits for one of them."""

    def __init__(
        self, settings: Settings, faults: InternalErrors, answered: Answered, writer: Writer | None
    ) -> None:
        self._faults = faults
        self._answered = answered
        self._writer = writer
        self.webhook = WebhookQueue(settings, faults, answered) if settings.webhook_url else None

    def send(self, escalation: Escalation) -> None:
        """Sends an escalation to all; the store has it from `keep`."""
        if self.webhook is not None:
            self.webhook.put(escalation)
        taken = partial(_take, escalation, self._answered)
        ESCALATIONS.notify(escalation, escalation.session, self._faults, taken)

    def keep(self, case: Case) -> None:
        """Stores the state of an escalation for other processes, for a day."""
        if self._writer is not None:
            value = encoded(case_row(case))
            self._writer.put(KIND, case.escalation.id, value, _KEPT_S)


class WebhookQueue:
    """Posts escalations in the background, and again where that failed and may pass."""

    def __init__(self, settings: Settings, faults: InternalErrors, answered: Answered) -> None:
        try:
            from otel_loopguard.escalation.webhook import Webhook  # noqa: PLC0415  # httpx is an extra
        except ModuleNotFoundError as error:
            if error.name != "httpx":
                raise
            msg = "webhook_url (LOOPGUARD_WEBHOOK_URL) needs: pip install 'otel-loopguard[webhook]'"
            raise LoopGuardSettingsError(msg) from None
        self._deliver = Webhook(settings, answered).deliver
        self._attempts = settings.tuning.delivery.attempts
        self._retry_s = settings.tuning.delivery.retry_s
        most = settings.tuning.delivery.queue
        self._worker = BackgroundWorker("webhook", self._attempt, faults, maximum=most)
        self.flush = self._worker.flush

    def put(self, escalation: Escalation) -> None:
        """Queues an escalation."""
        self._put(1, escalation, 0)

    def _put(self, attempt: int, escalation: Escalation, pause_s: float) -> None:
        if not self._worker.put((attempt, escalation), pause_s):
            msg = "webhook: escalation %s is not posted: too many wait"
            logger.warning(msg, escalation.id)

    def _attempt(self, item: tuple[int, Escalation]) -> None:
        attempt, escalation = item
        if self._deliver(escalation) or attempt >= self._attempts:
            return
        pause_s = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_S)
        if time.time_ns() + pause_s * 1e9 < escalation.until:
            self._put(attempt + 1, escalation, pause_s)


def _take(escalation: Escalation, answered: Answered, said: object) -> None:
    """Takes what a callback gave back for the answer."""
    try:
        take_reply(escalation, said, "callback", answered)
    except (EscalationError, PlanError) as error:
        logger.warning("on_escalation: its answer was not taken: %s", error)


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
