"""The instruments of one meter provider, and the guards that they tell of.

All that is counted is counted in plain tables, and read when a reader collects: nothing of an SDK
runs on the agent's thread, counters are there with 0 before anything happened, and a provider that
is set later misses nothing.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from opentelemetry.metrics import Observation, get_meter, get_meter_provider

from otel_loopguard import semconv
from otel_loopguard.faults import attempt, swallow
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock
from otel_loopguard.telemetry.counts import Counts, Key
from otel_loopguard.telemetry.metrics import METRICS, Metric
from otel_loopguard.telemetry.places import context_of
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider

    from otel_loopguard.faults import Faults
    from otel_loopguard.telemetry.places import Place

_NAME: Final = "otel_loopguard"
_KEPT: Final = 4096

Totals = Callable[[str], Mapping[Key, float]]
"""What was counted of a metric so far, of somebody who may be gone by now."""


class Value(NamedTuple):
    """A value of a histogram.

    Attributes:
        metric: Name of the metric.
        value: The value, in its unit.
        attributes: Its attributes.
        place: The span that it was measured at, for an exemplar; None for none.
    """

    metric: str
    value: float
    attributes: Mapping[str, str]
    place: Place | None = None


class Teller(Protocol):
    """Somebody who has something to tell of most metrics: the telemetry of a guard."""

    @property
    def faults(self) -> Faults:
        """Where faults are counted."""
        ...

    def told(self, metric: str) -> Mapping[Key, float]:
        """What it has to say of a metric now, by values of its attributes."""
        ...


class Board:
    """What all guards of one meter provider have to say, added up.

    Guards are held weakly; what one has counted stays when it is gone, as counters go up only.

    Args:
        provider: The meter provider; None for the global one, which may be set later.
        faults: Where faults of the provider are counted.
    """

    def __init__(self, provider: MeterProvider | None, faults: Faults) -> None:
        self._tellers: weakref.WeakSet[Teller] = weakref.WeakSet()
        self._gone = Counts()
        self._lock = new_lock()
        self._faults = faults
        self._left: deque[Totals] = deque()
        self._values: deque[Value] = deque(maxlen=_KEPT)
        self._histograms: dict[str, Histogram] = {}
        with swallow(faults, "telemetry.meter"):
            self._make(provider, faults)
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock is made anew, and others' counts are the parent's."""
        self._lock = new_lock()
        self._gone.forked()
        self._values.clear()

    def join(self, teller: Teller, totals: Totals) -> None:
        """Takes a guard in.

        Args:
            teller: Its telemetry, held weakly.
            totals: What it has counted, asked once more when it is gone; must not hold it.
        """
        with self._lock:
            self._tellers.add(teller)
        # Kept by the next reader: here, in a weak reference's callback, no lock may be taken.
        weakref.finalize(teller, self._left.append, totals).atexit = False

    def keep(self, value: Value) -> None:
        """Keeps a value of a histogram until a reader collects; the newest 4096."""
        self._values.append(value)

    def observe(self, metric: Metric) -> list[Observation]:
        """What a reader gets of a metric now."""
        self._record()
        with self._lock:
            tellers = list(self._tellers)
            while self._left:
                self._keep(self._left.popleft())
        found = dict(self._gone.of(metric.name))
        for teller in tellers:
            told = attempt(teller.faults, "telemetry.observe", teller.told, metric.name) or {}
            for key, value in told.items():
                known = found.get(key)
                # A share of one guard is no part of that of two: the higher one is told.
                merged = max if metric.type == "gauge" else _sum
                found[key] = value if known is None else merged(known, value)
        return [Observation(value, _attributes(metric, key)) for key, value in found.items()]

    def _record(self) -> None:
        """Puts the values that were kept into their histograms."""
        while self._values:
            with suppress(IndexError):  # another reader was faster
                attempt(self._faults, "telemetry.record", self._put, self._values.popleft())

    def _put(self, value: Value) -> None:
        histogram = self._histograms.get(value.metric)
        if histogram is not None:
            context = None if value.place is None else context_of(value.place)
            histogram.record(value.value, value.attributes, context)

    def _make(self, provider: MeterProvider | None, faults: Faults) -> None:
        meter = get_meter(_NAME, __version__, provider)
        makers = {
            "counter": meter.create_observable_counter,
            "updowncounter": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for metric in METRICS:
            with swallow(faults, "telemetry.instrument"):
                if metric.type == "histogram":
                    self._histograms[metric.name] = meter.create_histogram(
                        metric.name,
                        metric.unit,
                        metric.about,
                        explicit_bucket_boundaries_advisory=metric.bounds,
                    )
                else:
                    callback = self._callback(metric)
                    makers[metric.type](metric.name, [callback], metric.unit, metric.about)

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def called(_: CallbackOptions) -> Iterable[Observation]:
            return self.observe(metric)

        return called

    def _keep(self, totals: Totals) -> None:
        """A guard is gone: what it has counted stays."""
        for metric in METRICS:
            if metric.type == "counter":
                self._gone.take(metric.name, totals(metric.name))


def _sum(one: float, other: float) -> float:
    return one + other


def _attributes(metric: Metric, key: Key) -> dict[str, str | bool]:
    return {
        name: True if name == semconv.DECISION_SHADOW else value
        for name, value in zip(metric.attributes, key, strict=True)
        if value
    }


# Compared by identity: the meter provider of logfire has no hash.
_boards: list[tuple[weakref.ref[MeterProvider], Board]] = []
_unset: list[Board] = []
_making = new_lock()


def board_of(provider: MeterProvider | None, faults: Faults) -> Board:
    """The board of a meter provider: one for each, as a meter knows an instrument once.

    Args:
        provider: The meter provider; None for the global one.
        faults: Where faults of the provider are counted, if the board is made now.
    """
    with _making:
        known = get_meter_provider()
        if provider is None or provider is known:
            board = _known_board(known) or (_unset[0] if _unset else None)
            if board is None:
                # What is set later takes over the instruments of the one that stood in for it.
                board = Board(None, faults)
                _unset.append(board)
            return board
        board = _known_board(provider)
        if board is None:
            board = Board(provider, faults)
            _boards.append((weakref.ref(provider), board))
        return board


def _known_board(provider: MeterProvider) -> Board | None:
    _boards[:] = [one for one in _boards if one[0]() is not None]
    return next((board for known, board in _boards if known() is provider), None)


class _Making:
    """Makes the lock anew in the child of a fork."""

    def forked(self) -> None:
        global _making  # noqa: PLW0603
        _making = new_lock()


_renewing = _Making()
renew_after_fork(_renewing)
