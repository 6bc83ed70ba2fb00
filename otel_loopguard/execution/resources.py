"""Load of the machine and its workers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psutil

from otel_loopguard._util.clock import deterministic
from otel_loopguard._util.errors import InternalErrors, attempt, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.core.admission import UNKNOWN_PRESSURE, Alert, ResourcePressure, ResourceUse
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.sessions.profiler import ResourceSample
from otel_loopguard.settings import Settings, imported


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine at one moment. None means *not known*."""

    cpu: float | None = None  # percent of all CPUs in use since the reading before
    memory: float | None = None  # percent in use
    io_wait: float | None = None  # percent of CPU time waiting for disks since then; Linux only
    disk: float | None = None  # bytes per second read and written on all disks
    network: float | None = None  # bytes per second received and sent on all interfaces
    rss: float | None = None  # memory of this process, in megabytes (10⁶ bytes)
    queue: int | None = None  # tasks that wait for a worker


class Gauges:
    """Reads the machine, on one thread. Rates are since the reading before: the first has none."""

    def __init__(self) -> None:
        self._process = _ask(psutil.Process)
        self._bytes: dict[str, tuple[float, int]] = {}

    def read(self) -> Reading:
        """One reading, without the depth of a queue; takes under a millisecond."""
        # psutil keeps the times of the reading before, apart for each thread.
        times = _ask(psutil.cpu_times_percent)
        waited = getattr(times, "iowait", None)
        memory = _ask(psutil.virtual_memory)
        used = None if self._process is None else _ask(self._process.memory_info)
        disk, network = _ask(psutil.disk_io_counters), _ask(psutil.net_io_counters)
        return Reading(
            None if times is None else max(0.0, 100.0 - times.idle - (waited or 0.0)),
            None if memory is None else memory.percent,
            waited,
            self._rate("disk", disk.read_bytes + disk.write_bytes if disk else None),
            self._rate("network", network.bytes_recv + network.bytes_sent if network else None),
            None if used is None else used.rss / 1e6,
        )

    def _rate(self, name: str, total: int | None) -> float | None:
        """Bytes per second since the reading before."""
        now, before = time.monotonic(), self._bytes.pop(name, None)
        if total is None:
            return None
        self._bytes[name] = (now, total)
        if before is None or now <= before[0]:
            return None
        # A counter that wrapped, or an interface that went away, is no negative rate.
        return max(0, total - before[1]) / (now - before[0])


def _ask(ask: Callable[[], Any]) -> Any:
    """Reading of psutil; None where the system gives none, as in some containers."""
    try:
        return ask()
    except (psutil.Error, OSError, NotImplementedError, RuntimeError):
        return None


# Seconds that the broker may take: the thread also measures the machine, once a second.
_WAIT_S: Final = 0.5
# What kombu appends to a queue's name for its priorities 3, 6 and 9; 0 has the bare name.
_PRIORITIES: Final = ("\x06\x163", "\x06\x166", "\x06\x169")
_NAMES: Final = {"celery": "celery", "rq": "default"}
_EXPECTED: Final = (
    "module:function, redis://host/0#list, celery+redis://host/0#queue or rq+redis://host/0#queue"
)

Depth = Callable[[], "int | None"]


def queue_depth(setting: str, faults: InternalErrors) -> Depth | None:
    """Returns what asks for the number of waiting tasks; it may block, and does not raise.

    Raises:
        LoopGuardSettingsError: The setting names no queue that can be asked.
    """
    if not setting:
        return None
    if "://" in setting:
        try:
            return _redis_queue(setting, faults)
        except LoopGuardSettingsError:
            raise
        except ValueError:  # of `urlsplit` or redis, maybe with a part of the password
            raise _unusable(setting, "its host, port or an option cannot be used") from None
    ask = imported("execution_queue", setting, _EXPECTED)
    return lambda: attempt(faults, "queue", _number, ask)


def _redis_queue(setting: str, faults: InternalErrors) -> Depth:
    """Asks for the length of the lists of a queue on Redis, in the layout of its broker."""
    kind, plus, _ = setting.partition("://")[0].rpartition("+")
    url = urlsplit(setting.removeprefix(kind + plus))
    name = unquote(url.fragment) or _NAMES.get(kind, "")
    if url.scheme not in ("redis", "rediss") or kind not in ("", *_NAMES) or not name:
        raise _unusable(setting, f"expected {_EXPECTED}")
    try:
        redis: Any = import_module("redis")
    except ImportError:
        raise _unusable(setting, "needs: pip install 'otel-loopguard[redis]'") from None
    keys = [f"rq:queue:{name}" if kind == "rq" else name]
    if kind == "celery":  # kombu keeps one more list per priority
        keys += [f"{name}{priority}" for priority in _PRIORITIES]
    place, waits = url._replace(fragment="").geturl(), {"socket_timeout": _WAIT_S}
    client = redis.Redis.from_url(place, socket_connect_timeout=_WAIT_S, **waits)

    def depth() -> int | None:
        with swallow(faults, "queue"):
            asked = client.pipeline(transaction=False)
            for key in keys:
                asked.llen(key)
            return sum(int(length) for length in asked.execute())
        return None

    return depth


def _number(ask: Callable[[], object]) -> int:
    found = ask()
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not found >= 0:
        raise ValueError(f"a queue depth must be 0 or more, got {found!r:.100}")
    return int(found)


def _unusable(setting: str, why: str) -> LoopGuardSettingsError:
    shown = setting.rpartition("@")[2].partition("?")[0]  # a password in a URL is not repeated
    return LoopGuardSettingsError(f"execution_queue (LOOPGUARD_EXECUTION_QUEUE) = {shown!r}: {why}")


_IDLE_S: Final = 60.0
"""Seconds without a question after which measuring stops: a process that decides nothing pays
nothing."""
_STALE: Final = 10
"""Intervals after which a reading is too old, when the thread was starved or is gone."""
_FIRST_S: Final = 0.1
"""Seconds after which the first rates are read; half of what a rate takes to be steady is enough to
begin with."""
_IO_WAIT_PERCENT: Final = 70.0
"""I/O wait that is an alert: disks do most of the work. From here on another call only waits."""
_CRITICAL: Final = 1.2
"""Times its threshold from which a resource is critical, so that calls wait."""
_HIGHEST: Final = 98.0
"""A percentage that is critical in any case: 1.2 times 85 % would never be reached."""
_SAMPLES: Final = 100
"""Readings that are kept: those of the last minutes."""
_SMOOTHED: Final = 3
"""Newest readings whose mean is compared with the thresholds: one peak is no alert."""
_MEASURED: Final = ("cpu", "memory", "io_wait", "disk", "network", "rss", "queue")


class Resources:
    """The newest measurements of resources. Thread-safe; no question waits for anything.

    A thread measures from the first question until a minute after the last one.

    Attributes:
        sample: The newest reading as tool profiles take it; None before the first.
    """

    def __init__(
        self, settings: Settings, faults: InternalErrors, depth: Depth | None = None
    ) -> None:
        rule = settings.tuning.resources
        self._faults = faults
        self._gauges: Gauges | None = None
        self._every_s = rule.sample_s
        self._asked = 0.0
        self._fresh_until = 0.0
        self._pressure = UNKNOWN_PRESSURE
        self.sample: ResourceSample | None = None
        self._depth = depth
        self._limits = {
            "cpu": rule.cpu_percent,
            "memory": rule.memory_percent,
            "io_wait": _IO_WAIT_PERCENT,
            "queue": float(rule.queue_depth),
        }
        self._thread = BackgroundThread("resources", self._measure, faults, idle_s=0)
        self._lock = new_lock()
        self._readings: deque[Reading] = deque(maxlen=_SAMPLES)

    @property
    def pressure(self) -> ResourcePressure:
        """The newest pressure; nothing is known before the first reading."""
        self._asked = time.monotonic()
        if self._every_s and not self._thread.is_running and not deterministic():
            self._thread.wake()
        return self.newest

    @property
    def newest(self) -> ResourcePressure:
        """As `pressure`, without starting the sampling thread."""
        return self._pressure if time.monotonic() < self._fresh_until else UNKNOWN_PRESSURE

    def use(self) -> Mapping[str, ResourceUse]:
        """Mean and peak of every resource that is known, by the names of `Reading`."""
        found: dict[str, ResourceUse] = {}
        with self._lock:
            readings = tuple(self._readings)
        for name in _MEASURED:
            known = [value for one in readings if (value := getattr(one, name)) is not None]
            if known:
                found[name] = ResourceUse(sum(known) / len(known), max(known), len(known))
        return found

    def add(self, reading: Reading) -> None:
        """Adds a reading: on the thread, in a test, or where an application measures itself."""
        with self._lock:
            self._readings.append(reading)
            newest = list(self._readings)[-_SMOOTHED:]
        self.sample = ResourceSample(reading.cpu, reading.rss, reading.io_wait)
        means: dict[str, float] = {}
        alerts: list[Alert] = []
        for name, limit in self._limits.items():
            known = [value for one in newest if (value := getattr(one, name)) is not None]
            if not known:
                continue
            value = means[name] = sum(known) / len(known)
            critical = limit * _CRITICAL
            if name != "queue":
                critical = max(limit, min(critical, _HIGHEST))
            if value >= limit:
                alerts.append(Alert(name, value, limit, critical=value >= critical))
        load = means["cpu"] / 100 if "cpu" in means else None
        self._pressure = ResourcePressure(load, reading.queue, tuple(alerts))
        self._fresh_until = time.monotonic() + (self._every_s or 1.0) * _STALE

    def stop(self) -> None:
        """Ends the thread; the next question starts a new one."""
        self._thread.stop()

    def _measure(self) -> float | None:
        """Measures on the thread; the seconds until the next time, None after a minute unasked."""
        if time.monotonic() - self._asked >= max(_IDLE_S, 2 * self._every_s):
            self._gauges = None
            return None  # the next question starts the thread again
        with swallow(self._faults, "resources"):
            if self._gauges is None:
                self._gauges = Gauges()
                self._gauges.read()  # rates need two readings
            else:
                reading, depth = self._gauges.read(), self._depth
                self.add(reading if depth is None else replace(reading, queue=depth()))
        return self._every_s if self._readings else min(self._every_s, _FIRST_S)
