"""Where escalations are sent: a webhook, callbacks, the store; each on its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_loopguard.control import people
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import Reply, reply_in
from otel_loopguard.escalation.carrier import Carrier
from otel_loopguard.escalation.encoding import encoded
from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.register import Case
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


KIND: Final = "escalation"
"""Kind of the value that an escalation is in a store."""
_KEPT_S: Final = 86_400.0
_CALLBACKS: Final = 64

Answered = Callable[[str, Reply], object]


class Channels:
    """The channels of one guard. Nothing here waits for one of them.

    Args:
        settings: Settings of the guard.
        faults: Where faults are counted.
        answered: Takes an answer that a channel gives back.
        writer: Puts escalations into the store; None without one.

    Raises:
        LoopGuardSettingsError: `webhook_url` is set, and the extra `webhook` is missing.

    Attributes:
        webhook: The carrier of the webhook; None without one.
    """

    def __init__(
        self, settings: Settings, faults: Faults, answered: Answered, writer: Writer | None
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._answered = answered
        self._writer = writer
        # Re-entrant: a finalizer may end a span, and that send another one, while it is held.
        self._lock = new_lock()
        self._carriers: dict[int, tuple[people.Callback, Carrier]] = {}
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

    def _carrier(self, callback: people.Callback) -> Carrier:
        known = set(map(id, people.callbacks()))
        with self._lock:
            for gone in self._carriers.keys() - known:
                del self._carriers[gone]
            found = self._carriers.get(id(callback))
            if found is None:
                carrier = Carrier(
                    "on_escalation", self._calling(callback), self._faults,
                    most=self._settings.escalation_queue,
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


def _webhook(settings: Settings, faults: Faults, answered: Answered) -> Carrier:
    try:
        from otel_loopguard.escalation.webhook import Webhook  # noqa: PLC0415  # httpx is an extra
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        msg = "webhook_url (LOOPGUARD_WEBHOOK_URL) needs: pip install 'otel-loopguard[webhook]'"
        raise LoopGuardSettingsError(msg) from None
    return Carrier(
        "webhook",
        Webhook(settings, answered).deliver,
        faults,
        most=settings.escalation_queue,
        attempts=settings.webhook_attempts,
        retry_s=settings.webhook_retry_s,
    )
