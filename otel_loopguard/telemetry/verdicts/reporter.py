"""Reports decisions, and sessions that ended without one, as verdicts."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from otel_loopguard._util.errors import swallow
from otel_loopguard._util.locks import held, later
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.telemetry.verdicts.verdict import of_decision, of_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import DecisionRecord
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.verdicts.delivery import Count, VerdictQueue
    from otel_loopguard.telemetry.verdicts.verdict import Verdict


class VerdictReporter:
    """Sends verdicts to the log events and the backends. Nothing here waits or raises.

    Args:
        settings: Settings.
        faults: What is swallowed is counted here.
        emit: Emits a verdict as a log event; None where that is not asked for.
        count: Counts a metric.
        live: Whether verdicts go to backends.

    Raises:
        LoopGuardSettingsError: A backend that is asked for cannot be used.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, emit: Callable[[Verdict], None] | None,
        count: Count, *, live: bool,
    ) -> None:  # fmt: skip
        self._faults = faults
        self._emit = emit
        self._flush_s = settings.tuning.delivery.flush_s
        self._queues: tuple[VerdictQueue, ...] = ()
        names = sorted(settings.verdicts - {"annotations", "evaluations"})
        if names and live:
            self._queues = _queues(names, settings, faults, count)

    def on_decision(self, made: DecisionRecord) -> None:
        """Reports a decision; what is only noted judges nothing."""
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
        """Waits for what is on its way, at most for `tuning.delivery.flush_s`."""
        until = time.monotonic() + self._flush_s
        for queue in self._queues:
            queue.close(max(until - time.monotonic(), 0))

    def _report(self, verdict: Verdict) -> None:
        if self._emit is not None:
            self._emit(verdict)
        # What no backend will see needs no verdict there.
        for queue in self._queues if verdict.sampled else ():
            queue.put(verdict)


def _queues(
    names: Sequence[str], settings: Settings, faults: InternalErrors, count: Count
) -> tuple[VerdictQueue, ...]:
    try:
        from otel_loopguard.telemetry.verdicts import delivery  # noqa: PLC0415  # httpx
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        msg = "verdicts (LOOPGUARD_VERDICTS) needs: pip install 'otel-loopguard[verdicts]'"
        raise LoopGuardSettingsError(msg) from None
    return tuple(
        delivery.VerdictQueue(
            name,
            delivery.BACKENDS[name](os.environ, settings.tuning.delivery.timeout_s),
            settings,
            faults,
            count,
        )
        for name in names
    )
