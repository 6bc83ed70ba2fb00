"""Reports verdicts as log events, and to the backends of the setting `verdicts`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard._util.delivery import DeliveryQueue
from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import held, later
from otel_loopguard._util.logger import logger
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.telemetry.verdicts import evaluation, of_decision, of_end

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import DecisionRecord
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.backends import Backend
    from otel_loopguard.telemetry.events import Event
    from otel_loopguard.telemetry.verdicts import Verdict


class VerdictReporter:
    """Sends verdicts to the log events and the backends. Never waits, never raises.

    Args:
        settings: Settings.
        faults: Counts what is swallowed.
        emit: Emits a log event.
        count: Adds one to a metric, by the values of its attributes.
        live: True if verdicts go to backends.

    Raises:
        LoopGuardSettingsError: A backend of the settings cannot be used.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, emit: Callable[[Event], None],
        count: Callable[[str, tuple[str, ...]], None], *, live: bool,
    ) -> None:  # fmt: skip
        self._faults = faults
        self._emit = emit if "evaluations" in settings.verdicts else None
        self._count = count
        self._tuning = settings.tuning.delivery
        self._logged: set[str] = set()  # backends whose first loss was logged
        self._queues: dict[str, tuple[str, DeliveryQueue[Verdict]]] = {}
        for name in sorted(settings.verdicts - {"annotations", "evaluations"}) if live else ():
            backend = _backend(name, self._tuning.timeout_s)
            self._queues[name] = (backend.endpoint.host, self._queue(name, backend))

    def on_decision(self, made: DecisionRecord) -> None:
        """Reports a decision; a mere note judges nothing."""
        if made.decision.action is not Action.ALLOW:
            self._report(of_decision(made))

    def on_end(self, session: Session) -> None:
        """A session is over; reported once, and if nothing was decided. May be called anywhere."""
        with swallow(self._faults, "verdicts.end"):
            if session.judged or session.over or not (session.named or session.traces):
                return
            session.over = True
            verdict = of_end(session, time.time_ns())
            if held():
                later(partial(self._report, verdict))
            else:
                self._report(verdict)

    def close(self) -> None:
        """Delivers pending verdicts, within `tuning.delivery.flush_s` in all."""
        until = time.monotonic() + self._tuning.flush_s
        for _, queue in self._queues.values():
            queue.close(max(until - time.monotonic(), 0))

    def _report(self, verdict: Verdict) -> None:
        if self._emit is not None:
            self._emit(evaluation(verdict))
        # A verdict on a span that no backend gets is of no use there.
        for name, (_, queue) in self._queues.items() if verdict.sampled else ():
            if not queue.put(verdict):
                self._lost(name, "queue_full", "too many wait")

    def _queue(self, name: str, backend: Backend) -> DeliveryQueue[Verdict]:
        def deliver(verdict: Verdict) -> None:
            backend.write(verdict)
            self._count(semconv.METRIC_VERDICTS, (name, ""))

        def failed(_: Verdict, why: str, again: bool) -> None:
            if not again:
                self._lost(name, "failure", why)

        return DeliveryQueue(
            f"verdicts-{name}", deliver, self._faults, failed,
            maximum=self._tuning.queue, attempts=self._tuning.attempts,
            retry_s=self._tuning.retry_s,
        )  # fmt: skip

    def _lost(self, name: str, kind: str, why: str) -> None:
        self._count(semconv.METRIC_VERDICTS, (name, kind))
        if name not in self._logged:
            self._logged.add(name)
            msg = "verdicts do not arrive at %s (%s): %s; more are counted, and not logged"
            logger.warning(msg, name, self._queues[name][0], why)


def _backend(name: str, limit_s: float) -> Backend:
    try:
        from otel_loopguard.telemetry.backends import BACKENDS  # noqa: PLC0415  # httpx is an extra
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        msg = "verdicts (LOOPGUARD_VERDICTS) needs: pip install 'otel-loopguard[verdicts]'"
        raise LoopGuardSettingsError(msg) from None
    return BACKENDS[name](os.environ, limit_s)
