"""How busy the machine is: one background thread looks, everybody else reads the newest word.

Source: FEATURES A7 (thresholds, samples), A10 (mean and peak use).
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard.core import UNKNOWN_PRESSURE, Alert, Pressure
from otel_loopguard.core.pressure import Use
from otel_loopguard.faults import swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import Signal, new_lock, start_thread
from otel_loopguard.profiling.sample import ResourceSample
from otel_loopguard.rehearsal import deterministic

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults
    from otel_loopguard.profiling.gauges import Reading
    from otel_loopguard.settings import Settings

_IDLE_S: Final = 60.0
"""Seconds without a question after which nobody looks any more."""

_STALE: Final = 10
"""Intervals after which a reading says nothing any more."""

_HIGHEST: Final = 98.0
"""A percentage that is critical in any case: 1.2 times 85 % would never be reached."""

_FIELDS: Final = ("cpu", "memory", "io_wait", "disk", "network", "rss", "queue")


class _Gauges(Protocol):
    def read(self) -> Reading: ...


class Resources:
    """The newest word on resources. Thread-safe; no question waits for anything.

    The thread is a daemon, is started by the first question and ends a minute after the last one;
    it is started again in the child of a fork. It holds this object weakly.

    Args:
        settings: Settings of the guard.
        faults: Counts what goes wrong in the thread.
        depth: Gives the number of waiting tasks; may block. None: nobody knows.
        gauges: Makes what reads the machine; psutil by default.

    Attributes:
        depth: As given; may be set later.
    """

    def __init__(
        self,
        settings: Settings,
        faults: Faults,
        depth: Callable[[], int | None] | None = None,
        gauges: Callable[[], _Gauges] | None = None,
    ) -> None:
        self._settings = settings
        self._faults = faults
        self._gauges = gauges or _psutil_gauges
        self._on = settings.execution_resources
        self._every = settings.execution_sample_s
        self._asked = 0.0
        self._fresh_until = 0.0
        self._pressure = UNKNOWN_PRESSURE
        self.depth = depth
        self._limits = (
            ("cpu", settings.execution_cpu_percent),
            ("memory", settings.execution_memory_percent),
            ("io_wait", settings.execution_io_wait_percent),
            ("queue", float(settings.execution_queue_depth)),
        )
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork the thread is gone, and its lock may have been held."""
        self._lock = new_lock()  # a finalizer may start a span in there
        self._running = False
        self._stop = Signal()
        kept: deque[Reading] | tuple[()] = getattr(self, "_readings", ())
        self._readings: deque[Reading] = deque(kept, maxlen=self._settings.execution_samples)

    @property
    def pressure(self) -> Pressure:
        """The newest word; nothing known before the first look, and when nobody looks."""
        now = time.monotonic()
        self._asked = now
        if not self._running and self._on and not deterministic():
            self._start()
        return self._pressure if now < self._fresh_until else UNKNOWN_PRESSURE

    @property
    def newest(self) -> Pressure:
        """As `pressure`, without a wish to be kept up to date."""
        fresh = time.monotonic() < self._fresh_until
        return self._pressure if fresh else UNKNOWN_PRESSURE

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The newest readings, at most `execution_samples` (100), oldest first."""
        with self._lock:
            return tuple(self._readings)

    @property
    def sample(self) -> ResourceSample | None:
        """The newest reading as tool profiles take it (A8); None before the first."""
        readings = self._readings
        if not readings:
            return None
        last = readings[-1]
        return ResourceSample(last.cpu, last.rss, last.io_wait)

    def use(self) -> Mapping[str, Use]:
        """Mean and peak of every resource that is known (A10), by the names of `Reading`."""
        found: dict[str, Use] = {}
        for name in _FIELDS:
            known = [value for one in self.readings if (value := getattr(one, name)) is not None]
            if known:
                found[name] = Use(sum(known) / len(known), max(known), len(known))
        return found

    def take(self, reading: Reading) -> None:
        """Takes a reading. The thread does; so may a test, or an application that measures itself.

        Args:
            reading: What was measured.
        """
        with self._lock:
            self._readings.append(reading)
            newest = list(self._readings)[-self._settings.execution_smoothing :]
        self._pressure = self._judged(newest)
        self._fresh_until = time.monotonic() + self._every * _STALE

    def stop(self) -> None:
        """Ends the thread, for good."""
        self._on = False
        self._stop.set()

    def _judged(self, newest: list[Reading]) -> Pressure:
        means = {name: _mean([getattr(one, name) for one in newest]) for name, _ in self._limits}
        alerts: list[Alert] = []
        for name, limit in self._limits:
            value = means[name]
            if value is not None and value >= limit:
                critical = limit * self._settings.execution_critical
                if name != "queue":
                    critical = max(limit, min(critical, _HIGHEST))
                alerts.append(Alert(name, value, limit, critical=value >= critical))
        cpu = means["cpu"]
        return Pressure(None if cpu is None else cpu / 100, newest[-1].queue, tuple(alerts))

    def _start(self) -> None:
        with self._lock:
            if self._running or not self._on:
                return
            self._running = start_thread(
                "resources", _watch, weakref.WeakMethod(self._look), self._stop
            )

    def _over(self) -> bool:
        """Whether nobody has asked for a minute; then the next question starts a new thread."""
        idle = max(_IDLE_S, 2 * self._every)
        with self._lock:
            if self._on and time.monotonic() - self._asked < idle:
                return False
            self._running = False
            return True

    def _look(self, gauges: _Gauges | None) -> tuple[_Gauges | None, float | None]:
        """One look; gives what to look with next, and in how many seconds; None: not at all."""
        if self._over():
            return None, None
        with swallow(self._faults, "resources"):
            if gauges is None:
                gauges = self._gauges()
                gauges.read()  # rates need two readings
            else:
                depth, reading = self.depth, gauges.read()
                self.take(reading if depth is None else replace(reading, queue=depth()))
        # The first word comes soon: a tenth of a second is enough for a rate.
        return gauges, self._every if self._readings else min(self._every, 0.1)


def _watch(
    look: weakref.WeakMethod[Callable[[_Gauges | None], tuple[_Gauges | None, float | None]]],
    stop: Signal,
) -> None:
    """The thread: looks until nobody asks any more, or nobody is there."""
    gauges: _Gauges | None = None
    while True:
        once = look()
        if once is None:
            return
        gauges, pause = once(gauges)
        del once
        if pause is None or stop.wait(pause):
            return


def _psutil_gauges() -> _Gauges:
    # psutil takes longer to import than all else here, and is needed in the thread only.
    from otel_loopguard.profiling.gauges import Gauges  # noqa: PLC0415

    return Gauges()


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
