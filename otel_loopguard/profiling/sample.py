"""What a machine was doing at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """Load of the machine while a call ran. None is *not measured*, never nothing.

    Attributes:
        cpu_percent: CPU in use, in % of all processors, 0 to 100.
        memory_mb: Memory in use by the process, in MB.
        io_wait_percent: Time that processors waited for input and output, in %, 0 to 100.
    """

    cpu_percent: float | None = None
    memory_mb: float | None = None
    io_wait_percent: float | None = None
