"""What was counted, by metric and attributes; of bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_loopguard.locks import new_lock
from otel_loopguard.telemetry.names import OTHER

Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""

_MOST: Final = 1800
"""Different attributes of one metric; the SDK gives up its own order past 2000."""


class Counts:
    """Counts of one guard, or of guards that are gone. Thread-safe.

    Past 1800 different attributes of a metric, what is new is counted as `other` throughout.
    """

    def __init__(self) -> None:
        # Re-entrant: a finalizer may end a span, and be counted, while it is held.
        self._lock = new_lock()
        self._counts: dict[str, dict[Key, float]] = {}

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted is the parent's."""
        self._lock = new_lock()
        self._counts = {}

    def add(self, metric: str, key: Key, amount: float = 1) -> None:
        """Counts.

        Args:
            metric: Name of the metric.
            key: Values of its attributes.
            amount: How much.
        """
        with self._lock:
            counts = self._counts.get(metric)
            if counts is None:
                counts = self._counts[metric] = {}
            if key not in counts and len(counts) >= _MOST:
                key = tuple(OTHER if value else value for value in key)
            counts[key] = counts.get(key, 0) + amount

    def of(self, metric: str) -> Mapping[Key, float]:
        """What was counted of a metric, as it is now."""
        with self._lock:
            return dict(self._counts.get(metric, ()))

    def take(self, metric: str, counts: Mapping[Key, float]) -> None:
        """Adds what somebody else counted."""
        for key, amount in counts.items():
            self.add(metric, key, amount)
