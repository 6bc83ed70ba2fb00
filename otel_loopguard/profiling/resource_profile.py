"""What the calls of a tool cost the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.profiling.record import CallRecord
    from otel_loopguard.settings import Settings


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """Mean load while the calls of one tool ran (A8).

    A mean is None where nothing was measured; its sign is then False. What else the machine did at
    the time is in these numbers too.

    Attributes:
        samples: Calls of which anything was measured.
        cpu_percent: CPU in use, in %.
        memory_mb: Memory of the process, in MB.
        io_wait_percent: Time spent waiting for input and output, in %.
        cpu_intensive: Whether CPU is above `profile_cpu_percent` (60).
        memory_intensive: Whether memory is above `profile_memory_mb` (500).
        io_intensive: Whether I/O wait is above `profile_io_percent` (20).
    """

    samples: int
    cpu_percent: float | None
    memory_mb: float | None
    io_wait_percent: float | None
    cpu_intensive: bool
    memory_intensive: bool
    io_intensive: bool


def resources_of(records: Sequence[CallRecord], settings: Settings) -> ResourceProfile:
    """The resource profile of the records of one tool."""
    cpu = _mean(record.cpu_percent for record in records)
    memory = _mean(record.memory_mb for record in records)
    io_wait = _mean(record.io_wait_percent for record in records)
    return ResourceProfile(
        samples=sum(any(each is not None for each in record[-3:]) for record in records),
        cpu_percent=cpu,
        memory_mb=memory,
        io_wait_percent=io_wait,
        cpu_intensive=cpu is not None and cpu > settings.profile_cpu_percent,
        memory_intensive=memory is not None and memory > settings.profile_memory_mb,
        io_intensive=io_wait is not None and io_wait > settings.profile_io_percent,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
