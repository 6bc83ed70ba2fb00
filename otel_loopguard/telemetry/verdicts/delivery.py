"""Verdicts on their way to one backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard import semconv
from otel_loopguard._util.logger import logger
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.telemetry.verdicts.api import DeliveryError
from otel_loopguard.telemetry.verdicts.langfuse import Langfuse
from otel_loopguard.telemetry.verdicts.langsmith import LangSmith
from otel_loopguard.telemetry.verdicts.mlflow import MLflow
from otel_loopguard.telemetry.verdicts.phoenix import Phoenix

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings
    from otel_loopguard.telemetry.verdicts.api import BackendAPI
    from otel_loopguard.telemetry.verdicts.verdict import Verdict

_LONGEST_S: Final = 60.0
_CLOSING_S: Final = 0.2


Count = Callable[[str, tuple[str, ...]], None]
"""Counts one of a metric, by the values of its attributes."""


class Backend(Protocol):
    """Where verdicts are written."""

    @property
    def api(self) -> BackendAPI:
        """Its API."""
        ...

    def write(self, verdict: Verdict) -> None:
        """Writes one, in place of one of the same id. Blocks.

        Raises:
            DeliveryError: It was not taken.
        """
        ...


BACKENDS: Final[Mapping[str, Callable[[Mapping[str, str], float], Backend]]] = {
    "langfuse": Langfuse,
    "langsmith": LangSmith,
    "mlflow": MLflow,
    "phoenix": Phoenix,
}
"""By the name in the setting `verdicts`."""


class VerdictQueue:
    """Delivers verdicts to one backend in the background, with retries. Nobody who adds one waits.

    Losses are counted, and logged once.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        settings: Settings,
        faults: InternalErrors,
        count: Count,
    ) -> None:
        self._name = name
        self._backend = backend
        self._attempts = settings.tuning.delivery.attempts
        self._retry_s = settings.tuning.delivery.retry_s
        self._count = count
        self._told = False
        self._closing = False
        self._worker = BackgroundWorker[tuple[int, "Verdict"]](
            f"verdicts-{name}", self._attempt, faults,
            maximum=settings.tuning.delivery.queue,
        )  # fmt: skip

    def put(self, verdict: Verdict) -> None:
        """Adds a verdict."""
        if not self._worker.put((1, verdict)):
            self._lost("queue_full", "too many wait")

    def close(self, limit_s: float) -> None:
        """Waits until what was added is delivered or given up, for so many seconds at most."""
        self._closing = True
        try:
            self._worker.hasten()
            self._worker.flush(limit_s)
        finally:
            self._closing = False

    def _attempt(self, item: tuple[int, Verdict]) -> None:
        attempt, verdict = item
        try:
            self._backend.write(verdict)
        except DeliveryError as error:
            pause = min(self._retry_s * 2 ** (attempt - 1), _LONGEST_S)
            if self._closing:
                # There is one limit for all; the last spans may arrive within it.
                attempt, pause = attempt - 1, _CLOSING_S
            last = attempt >= self._attempts or not error.again
            if last or not self._worker.put((attempt + 1, verdict), pause):
                self._lost("failure", str(error))
        else:
            self._count(semconv.METRIC_VERDICTS, (self._name, ""))

    def _lost(self, kind: str, why: str) -> None:
        self._count(semconv.METRIC_VERDICTS, (self._name, kind))
        if not self._told:
            self._told = True
            msg = "verdicts do not arrive at %s (%s): %s; more are counted, and not logged"
            logger.warning(msg, self._name, self._backend.api.host, why)
