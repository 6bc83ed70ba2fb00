"""How busy the machine and its workers are, as a decision reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """One resource that is past its threshold (A7).

    Attributes:
        resource: `cpu`, `memory`, `io_wait` or `queue`.
        value: What was measured: percent, for `queue` tasks that wait.
        threshold: From where on it is an alert, in the same unit.
        critical: Whether it is past the critical threshold too.
    """

    resource: str
    value: float
    threshold: float
    critical: bool


@dataclass(frozen=True, slots=True)
class Pressure:
    """The newest word on resources. None means *not known*, never *none*.

    Attributes:
        load: Share of the CPUs that is busy, 0 to 1.
        queue: Tasks that wait for a worker.
        alerts: What is past its threshold, in the order CPU, memory, I/O wait, queue.
    """

    load: float | None = None
    queue: int | None = None
    alerts: tuple[Alert, ...] = ()

    @property
    def critical(self) -> bool:
        """Whether anything is past its critical threshold, so that what can wait should."""
        return any(alert.critical for alert in self.alerts)

    @property
    def scale_workers(self) -> bool:
        """Whether two or more resources are short, so that more workers would help (A7)."""
        return len(self.alerts) >= 2


UNKNOWN_PRESSURE = Pressure()
"""Where nothing was measured yet."""


@dataclass(frozen=True, slots=True)
class Use:
    """How much of one resource was used, over the samples that are kept (A10).

    Attributes:
        mean: Mean of the samples that have it, in the unit of `Reading`.
        peak: The highest of them.
        samples: How many have it.
    """

    mean: float
    peak: float
    samples: int
