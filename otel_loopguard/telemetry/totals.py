"""What a guard has counted, wherever it stands; asked once more when the guard is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard.telemetry.counts import Counts, Key

if TYPE_CHECKING:
    from otel_loopguard.admission.tallies import Tallies
    from otel_loopguard.faults import Faults
    from otel_loopguard.marks import Marks
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.state import State

_Values = Mapping[Key, float]


class Totals:
    """Counts that were made for metrics, and those that stand elsewhere. Holds no guard.

    Args:
        counts: What was counted for metrics.
        faults: Faults that were swallowed.
    """

    def __init__(self, counts: Counts, faults: Faults) -> None:
        self._counts = counts
        self._faults = faults
        self._tallies: Tallies | None = None
        self._marks: Marks | None = None
        self._writer: Writer | None = None
        self._elsewhere: dict[str, Callable[[], _Values]] = {
            semconv.METRIC_FAULTS: self._swallowed,
            semconv.METRIC_EXECUTION_CHOICES: self._choices,
            semconv.METRIC_EXECUTION_ANSWERS: self._answers,
            semconv.METRIC_ESTIMATES: self._estimates,
            semconv.METRIC_STORE_WRITES: self._writes,
            semconv.METRIC_STORE_RETRIES: self._retries,
        }

    def watch(self, state: State) -> None:
        """Takes where the counts of a guard stand."""
        self._tallies = state.admissions.tallies
        self._marks = state.marks
        self._writer = state.writer

    def __call__(self, metric: str) -> _Values:
        """What was counted of a metric so far."""
        elsewhere = self._elsewhere.get(metric)
        if elsewhere is not None:
            return elsewhere()
        found = self._counts.of(metric)
        if metric == semconv.METRIC_EXPORTER_EXPORTED and self._marks is not None:
            return {**found, ("queue_full",): self._marks.dropped}
        return found

    def _swallowed(self) -> _Values:
        found: dict[Key, float] = {}
        for kind, count in tuple(self._faults.counts.items()):
            place, _, error = kind.rpartition(":")
            found[place or kind, error if place else ""] = count
        return found

    def _choices(self) -> _Values:
        tallies = self._tallies
        return {} if tallies is None else {(one.value,): n for one, n in tallies.choices.items()}

    def _answers(self) -> _Values:
        tallies = self._tallies
        return {} if tallies is None else dict(tallies.answers)

    def _estimates(self) -> _Values:
        tallies = self._tallies
        return {} if tallies is None else {(one,): n for one, n in tallies.estimates.items()}

    def _writes(self) -> _Values:
        if self._writer is None:
            return {}
        now = self._writer.standing
        return {("",): now.stored, ("dropped",): now.dropped, ("refused",): now.refused}

    def _retries(self) -> _Values:
        return {} if self._writer is None else {(): self._writer.standing.retries}
