"""Whether spans arrive where they are sent: said once when they do not, and when they do again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


class Arrivals:
    """Follows how an exporter fares; one warning for each time that it begins to fail.

    The exporters of the SDK say of every batch why it failed, some of every try. Which address it
    was, and how much is lost, is said here.

    Args:
        exporter: Where spans are sent to; None: nowhere.
    """

    def __init__(self, exporter: SpanExporter | None) -> None:
        # Not public, but all exporters of OTLP have it; the name alone is not much of a help.
        endpoint = getattr(exporter, "_endpoint", "")
        self._where = type(exporter).__name__ + (f" to {endpoint}" if endpoint else "")
        self._lost = 0

    def note(self, spans: int, error: str) -> None:
        """Takes how an export ended.

        Args:
            spans: How many spans it had.
            error: How it failed; empty where it did not.
        """
        lost, self._lost = self._lost, self._lost + spans if error else 0
        if error and not lost:
            told = "spans do not arrive, with the decisions on them: %s %s"
            logger.warning(told + "; its own log says why", self._where, error)
        elif lost and not error:
            told = "spans arrive again: %s; %d were lost meanwhile"
            logger.warning(told, self._where, lost)
