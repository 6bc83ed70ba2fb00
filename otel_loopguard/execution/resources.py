"""How busy the machine and its workers are."""

from __future__ import annotations

import importlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

import psutil

from otel_loopguard._util.clock import deterministic
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.values import dataclass
from otel_loopguard._util.worker import BackgroundThread
from otel_loopguard.core import UNKNOWN_PRESSURE, Alert, ResourcePressure
from otel_loopguard.core.admission import ResourceUse
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.execution.latency import ResourceSample

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine at one moment. None means *not known*."""

    time: int  # nanoseconds since the epoch
    cpu: float | None = None  # percent of all CPUs in use since the reading before
    memory: float | None = None  # percent in use
    io_wait: float | None = None  # percent of CPU time waiting for disks since then; Linux only
    disk: float | None = None  # bytes per second read and written on all disks
    network: float | None = None  # bytes per second received and sent on all interfaces
    rss: float | None = None  # memory of this process, in megabytes (10⁶ bytes)
    queue: int | None = None  # tasks that wait for a worker


class Gauges:
    """Reads the machine. Rates are since the reading before; the first one has none.

    Not thread-safe: one thread reads. It keeps its own counters, because those inside of psutil
    are shared with whoever else uses it.
    """

    def __init__(self) -> None:
        self._process = _ask(psutil.Process)
        self._times: Any = None
        self._bytes: dict[str, tuple[float, int]] = {}

    def read(self) -> Reading:
        """One reading, without the depth of a queue; takes under a millisecond."""
        cpu, io_wait = self._cpu()
        memory = _ask(psutil.virtual_memory)
        used = None if self._process is None else _ask(self._process.memory_info)
        disk, network = _ask(psutil.disk_io_counters), _ask(psutil.net_io_counters)
        return Reading(
            time.time_ns(),
            cpu,
            None if memory is None else memory.percent,
            io_wait,
            self._rate("disk", disk.read_bytes + disk.write_bytes if disk else None),
            self._rate("network", network.bytes_recv + network.bytes_sent if network else None),
            None if used is None else used.rss / 1e6,
        )

    def _cpu(self) -> tuple[float | None, float | None]:
        now, before = _ask(psutil.cpu_times), self._times
        self._times = now
        if now is None or before is None:
            return None, None
        spent = {name: getattr(now, name) - getattr(before, name) for name in now._fields}
        # Time of guests is counted in `user` and `nice` already.
        total = sum(value for name, value in spent.items() if not name.startswith("guest"))
        if total <= 0:
            return None, None
        waited = spent.get("iowait")
        busy = total - spent.get("idle", 0.0) - (waited or 0.0)
        cpu, io_wait = (min(100.0, max(0.0, part / total * 100)) for part in (busy, waited or 0.0))
        return cpu, None if waited is None else io_wait

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
    """What psutil says, or None where the system does not, in a container for example."""
    try:
        return ask()
    except (psutil.Error, OSError, NotImplementedError, RuntimeError):
        return None


_WAIT_S: Final = 0.5
_PRIORITIES: Final = ("\x06\x163", "\x06\x166", "\x06\x169")
_NAMES: Final = {"celery": "celery", "rq": "default"}
_EXPECTED: Final = (
    "module:function, redis://host/0#list, celery+redis://host/0#queue or rq+redis://host/0#queue"
)

Depth = Callable[[], "int | None"]


def queue_depth(setting: str, faults: InternalErrors) -> Depth | None:
    """Returns the number of waiting tasks; may block, must not raise."""
    if not setting:
        return None
    if "://" in setting:
        return _RedisQueue(setting, faults)
    module, _, name = setting.partition(":")
    if not module or not name:
        raise _unusable(setting, f"expected {_EXPECTED}")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _unusable(setting, str(error)) from None
    if not callable(found):
        raise _unusable(setting, "is not callable")
    ask = cast("Callable[[], object]", found)
    return lambda: attempt(faults, "queue", _number, ask)


class _RedisQueue:
    """Length of the lists of a queue on Redis, in the layout of its broker."""

    def __init__(self, setting: str, faults: InternalErrors) -> None:
        kind, plus, _ = setting.partition("://")[0].rpartition("+")
        url = urlsplit(setting.removeprefix(kind + plus))
        name = unquote(url.fragment) or _NAMES.get(kind, "")
        if url.scheme not in ("redis", "rediss") or kind not in ("", *_NAMES) or not name:
            raise _unusable(setting, f"expected {_EXPECTED}")
        try:
            redis: Any = importlib.import_module("redis")
        except ImportError:
            raise _unusable(setting, "needs: pip install 'otel-loopguard[redis]'") from None
        self._keys = [f"rq:queue:{name}" if kind == "rq" else name]
        if kind == "celery":  # kombu keeps one more list per priority
            self._keys += [f"{name}{priority}" for priority in _PRIORITIES]
        self._client: Any = redis.Redis.from_url(
            url._replace(fragment="").geturl(),
            socket_timeout=_WAIT_S,
            socket_connect_timeout=_WAIT_S,
        )
        self._faults = faults

    def __call__(self) -> int | None:
        with swallow(self._faults, "queue"):
            asked: Any = self._client.pipeline(transaction=False)
            for key in self._keys:
                asked.llen(key)
            return sum(int(length) for length in asked.execute())
        return None


def _number(ask: Callable[[], object]) -> int:
    found = ask()
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not found >= 0:
        msg = f"a queue depth must be a number from 0 on, got {found!r:.100}"
        raise ValueError(msg)
    return int(found)


def _unusable(setting: str, why: str) -> LoopGuardSettingsError:
    shown = setting.rpartition("@")[2]  # a password in a URL is not repeated
    return LoopGuardSettingsError(f"execution_queue (LOOPGUARD_EXECUTION_QUEUE) = {shown!r}: {why}")


_IDLE_S: Final = 60.0
"""Seconds without a question after which measuring stops."""
_STALE: Final = 10
"""Intervals after which a reading is too old."""
_KEPT: Final = 100
"""Readings that are kept: 100 seconds at one a second, for means and peaks."""
_SMOOTHED: Final = 3
"""Newest readings whose mean is compared with a threshold: one peak is no alert."""
_HIGHEST: Final = 98.0
"""A percentage that is critical in any case: 1.2 times 85 % would never be reached."""


class Resources:
    """The newest measurements of resources. Thread-safe; no question waits for anything.

    A thread measures from the first question until a minute after the last one.
    """

    def __init__(
        self,
        settings: Settings,
        faults: InternalErrors,
        depth: Callable[[], int | None] | None = None,
        gauges: Callable[[], Gauges] = Gauges,
    ) -> None:
        self._faults = faults
        self._make_gauges = gauges
        self._gauges: Gauges | None = None
        self._rule = rule = settings.tuning.resources
        self._on = rule.sample_s > 0
        self._asked = self._due = 0.0
        self._fresh_until = 0.0
        self._pressure = UNKNOWN_PRESSURE
        self._sample: ResourceSample | None = None
        self.depth = depth
        self._limits = (
            ("cpu", rule.cpu_percent),
            ("memory", rule.memory_percent),
            ("io_wait", rule.io_wait_percent),
            ("queue", float(rule.queue_depth)),
        )
        self._thread = BackgroundThread("resources", self._measure, faults, idle_s=0)
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork the thread is gone, and its lock may have been held."""
        self._lock = new_lock()  # a finalizer may start a span in there
        self._measuring = False
        kept: deque[Reading] | tuple[()] = getattr(self, "_readings", ())
        self._readings: deque[Reading] = deque(kept, maxlen=_KEPT)

    @property
    def pressure(self) -> ResourcePressure:
        """The newest pressure; nothing is known before the first reading."""
        now = time.monotonic()
        self._asked = now
        if not self._measuring and self._on and not deterministic():
            self._measuring = True
            self._thread.wake()
        return self._pressure if now < self._fresh_until else UNKNOWN_PRESSURE

    @property
    def newest(self) -> ResourcePressure:
        """As `pressure`, without a wish to be kept up to date."""
        return self._pressure if time.monotonic() < self._fresh_until else UNKNOWN_PRESSURE

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The newest readings, at most 100, oldest first."""
        with self._lock:
            return tuple(self._readings)

    def sample(self) -> ResourceSample | None:
        """The newest reading as tool profiles take it; None before the first."""
        return self._sample

    def use(self) -> Mapping[str, ResourceUse]:
        """Mean and peak of every resource that is known, by the names of `Reading`."""
        found: dict[str, ResourceUse] = {}
        readings = self.readings
        for name in ("cpu", "memory", "io_wait", "disk", "network", "rss", "queue"):
            known = [value for one in readings if (value := getattr(one, name)) is not None]
            if known:
                found[name] = ResourceUse(sum(known) / len(known), max(known), len(known))
        return found

    def add(self, reading: Reading) -> None:
        """Adds a reading: on the thread, in a test, or where an application measures itself."""
        rule = self._rule
        with self._lock:
            self._readings.append(reading)
            newest = list(self._readings)[-_SMOOTHED:]
        self._sample = ResourceSample(reading.cpu, reading.rss, reading.io_wait)
        means = {name: _mean([getattr(one, name) for one in newest]) for name, _ in self._limits}
        alerts: list[Alert] = []
        for name, limit in self._limits:
            value = means[name]
            if value is not None and value >= limit:
                critical = limit * rule.critical
                if name != "queue":
                    critical = max(limit, min(critical, _HIGHEST))
                alerts.append(Alert(name, value, limit, critical=value >= critical))
        load = None if means["cpu"] is None else means["cpu"] / 100
        self._pressure = ResourcePressure(load, reading.queue, tuple(alerts))
        self._fresh_until = time.monotonic() + (rule.sample_s or 1.0) * _STALE

    def stop(self) -> None:
        """Ends the thread; the next question starts another one."""
        self._measuring = False
        self._thread.stop()

    def _measure(self) -> float | None:
        """Measures on the thread; the seconds until the next time, None after a minute unasked."""
        every, now = self._rule.sample_s, time.monotonic()
        if now - self._asked >= max(_IDLE_S, 2 * every):
            self._gauges = None
            self._measuring = False  # the next question starts the thread again
            return None
        if now < self._due:
            return self._due - now
        with swallow(self._faults, "resources"):
            if self._gauges is None:
                self._gauges = self._make_gauges()
                self._gauges.read()  # rates need two readings
            else:
                depth, reading = self.depth, self._gauges.read()
                self.add(reading if depth is None else replace(reading, queue=depth()))
        # The first reading comes soon: a tenth of a second is enough for a rate.
        pause = every if self._readings else min(every, 0.1)
        self._due = now + pause
        return pause


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
