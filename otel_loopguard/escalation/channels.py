"""Where escalations are sent: callbacks, a webhook, the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.escalation import ESCALATIONS
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import EscalationError, LoopGuardSettingsError, PlanError
from otel_loopguard.escalation.answers import reply_in
from otel_loopguard.escalation.payload import case_row, encoded

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.escalation import Escalation
    from otel_loopguard.escalation.answers import Reply
    from otel_loopguard.escalation.registry import Case
    from otel_loopguard.escalation.webhook import Webhook
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer

KIND: Final = "escalation"
"""Kind of the value of an escalation in a store."""
# A day: an escalation of the evening is there in the morning.
_KEPT_S: Final = 86_400.0

Answered = Callable[[], Callable[[str, "Reply"], object] | None]
"""A weak reference to the receiver of answers: it holds the channels."""


class Channels:
    """The channels of one guard. Nothing here waits for one of them."""

    def __init__(
        self, settings: Settings, faults: InternalErrors, answered: Answered, writer: Writer | None
    ) -> None:
        self._faults = faults
        self._answered = answered
        self._writer = writer
        self.webhook: Webhook | None = None
        if settings.webhook_url:
            self.webhook = _webhook()(settings, faults, partial(self._take, "webhook"))

    def send(self, escalation: Escalation) -> None:
        """Sends an escalation to all; `keep` stores it."""
        if self.webhook is not None:
            self.webhook.put(escalation)
        taken = partial(self._take, "callback", "on_escalation", escalation)
        ESCALATIONS.notify(escalation, escalation.session, self._faults, taken)

    def keep(self, case: Case) -> None:
        """Stores the state of an escalation for other processes, for a day."""
        if self._writer is not None:
            value = encoded(case_row(case))
            self._writer.put(KIND, case.escalation.id, value, _KEPT_S)

    def _take(self, via: str, where: str, escalation: Escalation, said: object) -> None:
        """Applies what a channel returned, if it is an answer; logs a wrong or late one."""
        try:
            reply, answer = reply_in(said, via), self._answered()
            if reply is not None and answer is not None:
                answer(escalation.id, reply)
        except (EscalationError, PlanError) as error:
            logger.warning("%s: its answer was not taken: %s", where, error)


def _webhook() -> type[Webhook]:
    try:
        from otel_loopguard.escalation.webhook import Webhook  # noqa: PLC0415  # httpx is an extra
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        msg = "webhook_url (LOOPGUARD_WEBHOOK_URL) needs: pip install 'otel-loopguard[webhook]'"
        raise LoopGuardSettingsError(msg) from None
    return Webhook
