"""What one look at the machine says: CPU, memory, disks, network, this process.

Source: FEATURES A7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil

_Value = TypeVar("_Value")
_BLIND = (psutil.Error, OSError, NotImplementedError, RuntimeError)
"""What psutil raises where a system does not say something, a container for example."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine at one moment. None means *not known*.

    Attributes:
        time: When, nanoseconds since the epoch.
        cpu: Percent of all CPUs in use since the reading before, 0 to 100.
        memory: Percent of the memory in use, 0 to 100.
        io_wait: Percent of CPU time spent waiting for disks since the reading before; Linux only.
        disk: Bytes per second read and written on all disks.
        network: Bytes per second received and sent on all interfaces.
        rss: Memory of this process, in megabytes (10⁶ bytes).
        queue: Tasks that wait for a worker.
    """

    time: int
    cpu: float | None = None
    memory: float | None = None
    io_wait: float | None = None
    disk: float | None = None
    network: float | None = None
    rss: float | None = None
    queue: int | None = None


class Gauges:
    """Reads the machine. Rates are since the reading before; the first one has none.

    Not thread-safe: one thread reads. It keeps its own counters, because those inside of psutil
    are shared with whoever else uses it.
    """

    def __init__(self) -> None:
        self._process = _or_none(psutil.Process)
        self._times: Any = None
        self._bytes: dict[str, tuple[float, int]] = {}

    def read(self) -> Reading:
        """One reading; takes under a millisecond. Who waits in a queue is not its business."""
        cpu, io_wait = self._cpu()
        memory = _or_none(psutil.virtual_memory)
        process = self._process
        used = None if process is None else _or_none(process.memory_info)
        return Reading(
            time.time_ns(),
            cpu,
            None if memory is None else memory.percent,
            io_wait,
            self._rate("disk", _disk_bytes),
            self._rate("network", _network_bytes),
            None if used is None else used.rss / 1e6,
        )

    def _cpu(self) -> tuple[float | None, float | None]:
        now, before = _or_none(psutil.cpu_times), self._times
        self._times = now
        if now is None or before is None:
            return None, None
        spent = {name: getattr(now, name) - getattr(before, name) for name in now._fields}
        # Time of guests is counted in `user` and `nice` already.
        total = sum(value for name, value in spent.items() if not name.startswith("guest"))
        if total <= 0:
            return None, None
        waited = spent.get("iowait")
        idle = spent.get("idle", 0.0) + (waited or 0.0)
        return _percent(total - idle, total), None if waited is None else _percent(waited, total)

    def _rate(self, name: str, count: Callable[[], int | None]) -> float | None:
        bytes_, now, before = _or_none(count), time.monotonic(), self._bytes.pop(name, None)
        if bytes_ is None:
            return None
        self._bytes[name] = (now, bytes_)
        if before is None or now <= before[0]:
            return None
        # A counter that wrapped, or an interface that went away, is no negative rate.
        return max(0, bytes_ - before[1]) / (now - before[0])


def _disk_bytes() -> int | None:
    found = psutil.disk_io_counters()
    return None if found is None else found.read_bytes + found.write_bytes


def _network_bytes() -> int | None:
    found: Any = psutil.net_io_counters()
    return None if not found else found.bytes_recv + found.bytes_sent


def _percent(part: float, whole: float) -> float:
    return min(100.0, max(0.0, part / whole * 100))


def _or_none(ask: Callable[[], _Value]) -> _Value | None:
    try:
        return ask()
    except _BLIND:
        return None
