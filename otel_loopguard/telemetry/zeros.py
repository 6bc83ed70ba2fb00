"""What is reported as 0 before it happened: a counter that is born at 1 has no increase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard.core import Action, Choice
from otel_loopguard.telemetry.names import UNKNOWN

if TYPE_CHECKING:
    from otel_loopguard.telemetry.counts import Key

_ASKING = (Action.ASK, Action.PAUSE)


class Zeros:
    """The attributes that metrics have from the start, each with 0.

    Args:
        detectors: Names of all detectors.
        agents: Named agents at most whose aborts are reported.
        shadow: Whether decisions are only noted.
    """

    def __init__(self, detectors: Sequence[str], agents: int, *, shadow: bool) -> None:
        self._detectors = detectors
        self._agents = agents
        self._shadow = "true" if shadow else ""
        unknown = {(name, UNKNOWN): 0 for name in detectors}
        self._fixed: dict[str, Mapping[Key, float]] = {
            semconv.METRIC_DECISIONS: {
                (action.value, name, UNKNOWN, self._shadow): 0
                for action in Action
                for name in detectors
            },
            semconv.METRIC_DETECTIONS: unknown,
            semconv.METRIC_LOOPS_DETECTED: unknown,
            semconv.METRIC_LOOPS_PREVENTED: unknown,
            semconv.METRIC_SAVED_TOKENS: unknown,
            semconv.METRIC_SAVED_TIME: unknown,
            semconv.METRIC_ESCALATIONS: {(action.value, UNKNOWN): 0 for action in _ASKING},
            semconv.METRIC_CYCLES: _each("found", "intervened", "escalated", "resolved"),
            semconv.METRIC_EVENTS: _each("", "queue_full", "failure"),
            semconv.METRIC_EXECUTION_CHOICES: _each(*(choice.value for choice in Choice)),
            semconv.METRIC_EXPORTER_EXPORTED: _each("", "queue_full", "failure", "raised"),
            semconv.METRIC_EXPORTER_SPANS: _each("", "failure", "raised"),
            semconv.METRIC_STRATEGY_SWITCHES: _each(UNKNOWN),
            semconv.METRIC_RUN_RETRIES: {(): 0},
            semconv.METRIC_RUN_DEGRADED_STEPS: {(): 0},
            semconv.METRIC_RUN_COMPACTIONS: {(): 0},
            semconv.METRIC_RUN_MISSING_DEPENDENCIES: {(): 0},
        }

    def of(self, metric: str, agents: Sequence[str]) -> Mapping[Key, float]:
        """What a metric has from the start.

        Args:
            metric: Name of the metric.
            agents: Agents that were seen, in their order; their aborts are reported from then on.
        """
        fixed = self._fixed.get(metric, {})
        if metric != semconv.METRIC_DECISIONS:
            return fixed
        aborts = {
            (Action.ABORT.value, name, agent, self._shadow): 0
            for agent in agents[: self._agents]
            for name in self._detectors
        }
        return {**fixed, **aborts}


def _each(*values: str) -> Mapping[Key, float]:
    return {(value,): 0 for value in values}
