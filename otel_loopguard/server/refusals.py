"""Logs why requests are refused."""

from __future__ import annotations

import time
from typing import Final

from otel_loopguard._util.logger import logger

QUIET_S: Final = 60.0
"""Seconds without a refusal after which its cause is over."""


class _Episode:
    """The refusals of one cause, from the first one on."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.count = 0
        self.last = 0.0


class Refusals:
    """Logs the first refusal of each cause, and how many there were once they are over."""

    def __init__(self) -> None:
        self._episodes: dict[str, _Episode] = {}

    def note(self, cause: str, why: str) -> None:
        """Notes a refusal.

        Args:
            cause: One of few names, whatever is sent.
            why: What the log says about it.
        """
        episode = self._episodes.get(cause)
        if episode is None:
            episode = self._episodes[cause] = _Episode(why)
            logger.warning("requests are refused: %s; the next line says when that is over", why)
        episode.count += 1
        episode.last = time.monotonic()

    def tick(self) -> None:
        """Logs what is over."""
        now = time.monotonic()
        for cause, episode in list(self._episodes.items()):
            if now - episode.last >= QUIET_S:
                del self._episodes[cause]
                logger.warning(
                    "not refused for %d s, after %d times: %s", QUIET_S, episode.count, episode.why
                )
