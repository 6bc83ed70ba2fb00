"""Logs why requests are refused, or would be, and counts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.logger import logger

if TYPE_CHECKING:
    from otel_loopguard.server.metrics import Cause, ServerMetrics

QUIET_S: Final = 60.0
"""Seconds without a trouble after which it is over: exporters try again within that."""


class _Episode:
    """A trouble, from its first time on."""

    def __init__(self, why: str, now: float) -> None:
        self.why = why
        self.count = 0
        self.first = now
        self.last = now


class TroubleLog:
    """Logs a trouble once when it begins, and once when it is over: how often, and how long.

    Args:
        what: What happens then, as `requests are refused`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._episodes: dict[str, _Episode] = {}

    def note(self, cause: str, why: str) -> None:
        """Notes that it happens.

        Args:
            cause: One of few names, whatever is sent.
            why: What the log says about it.
        """
        now = time.monotonic()
        episode = self._episodes.get(cause)
        if episode is None:
            episode = self._episodes[cause] = _Episode(why, now)
            logger.warning("%s: %s (%s; told again when it is over)", self._what, why, cause)
        episode.count += 1
        episode.last = now

    def newest(self, cause: str, within_s: float) -> str:
        """Why it happened lately by a cause; empty if it did not."""
        episode = self._episodes.get(cause)
        if episode is None or time.monotonic() - episode.last >= within_s:
            return ""
        return episode.why

    def tick(self) -> None:
        """Logs what is over."""
        now = time.monotonic()
        for cause, episode in list(self._episodes.items()):
            if now - episode.last >= QUIET_S:
                del self._episodes[cause]
                self._end(f"over for {QUIET_S:g} s", cause, episode)

    def close(self) -> None:
        """Logs what is not over when the server ends."""
        while self._episodes:
            self._end("the server ends", *self._episodes.popitem())

    def _end(self, now: str, cause: str, episode: _Episode) -> None:
        logger.warning(
            "%s: %s: %s (%s, %d times within %.0f s)",
            now, self._what, episode.why, cause, episode.count, episode.last - episode.first,
        )  # fmt: skip


class Refusals:
    """Logs and counts refusals by their cause.

    Args:
        metrics: What counts them.

    Attributes:
        log: What logs them.
    """

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics
        self.log = TroubleLog("requests are refused")

    def note(self, cause: Cause, why: str) -> None:
        """Notes a refusal."""
        self._metrics.add(semconv.METRIC_SERVER_REFUSALS, 1, cause)
        self.log.note(cause, why)
