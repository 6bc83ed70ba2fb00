"""What a guard tells OpenTelemetry of itself: numbers, and log events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from otel_loopguard.telemetry.herald import Herald
from otel_loopguard.telemetry.numbers import Estimator, Numbers
from otel_loopguard.telemetry.voice import Voice

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider

    from otel_loopguard.faults import Faults
    from otel_loopguard.opens import Open
    from otel_loopguard.sessions import CycleNews
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.events import Case
    from otel_loopguard.telemetry.state import State


class Escalations(Protocol):
    """What is put before people (C8)."""

    def listen(self, listener: Callable[[Case], None]) -> None:
        """Has something called for every escalation, when it is made and when it is over."""
        ...

    def open_escalations(self) -> Sequence[object]:
        """What waits for an answer."""
        ...


class Telemetry:
    """The metrics and the log events of one guard. Thread-safe; never raises, never waits.

    Args:
        settings: Settings of the guard.
        faults: Its faults.
        live: Whether its steps happen now. A replay tells nobody but the log, unless a provider is
            given.
        detectors: Names of its detectors.
        estimate: How long a call of a tool takes, from memory.
        meters: The meter provider; None for the global one, which may be set later.
        loggers: The logger provider; None for the global one, which may be set later.

    Attributes:
        numbers: What is counted.
        voice: Tells of decisions.

    Source: FEATURES A10, A11, B8, C15, O3.
    """

    def __init__(  # noqa: PLR0913
        self,
        settings: Settings,
        faults: Faults,
        *,
        live: bool,
        detectors: Sequence[str],
        estimate: Estimator,
        meters: MeterProvider | None = None,
        loggers: LoggerProvider | None = None,
    ) -> None:
        counting = settings.telemetry_metrics and (live or meters is not None)
        self.numbers = Numbers(settings, faults, detectors, estimate, meters, on=counting)
        telling = settings.enabled and (live or loggers is not None)
        self._herald = Herald(settings, faults, self.numbers.counts, loggers) if telling else None
        self.voice = Voice(settings, faults, self._herald, live=live)

    def cycled(self, session: str, news: CycleNews, opened: Open | None) -> None:
        """Something happened to a cycle of agents.

        Args:
            session: Key of its session.
            news: What there is to say.
            opened: The span that ended; None if its start was not seen.
        """
        self.numbers.cycled(news.state)
        self.voice.cycled(session, news, opened)

    def follow(self, escalations: Escalations) -> None:
        """Takes what is put before people: it is counted while it waits, and told of.

        Args:
            escalations: What is put before people.
        """
        self.voice.answering = True
        self.numbers.waiting = lambda: len(escalations.open_escalations())
        escalations.listen(self.voice.escalated)

    def watch(self, state: State) -> None:
        """Takes what is looked at when metrics are collected; anew in the child of a fork."""
        self.numbers.watch(state)

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted and waits is the parent's."""
        self.numbers.counts.forked()
        if self._herald is not None:
            self._herald.forked()

    def close(self) -> None:
        """Emits what waits, at most for `telemetry_flush_s`. It may be used further."""
        if self._herald is not None:
            self._herald.close()
