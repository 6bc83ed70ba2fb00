"""A server's own metrics, their exporter, and its log messages about troubles."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Literal, get_args

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation, get_meter, get_meter_provider
from opentelemetry.metrics import MeterProvider as AnyMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import Log, logger
from otel_loopguard._util.tables import read_table
from otel_loopguard.engine import Engine, Step, metric_of
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.sdk.provider import sdk_disabled
from otel_loopguard.version import __version__

Cause = Literal[
    "bad_request", "too_large", "slow", "busy", "store", "lease_lost", "next_hop", "token",
    "host", "origin",
]  # fmt: skip
"""Why a request is refused."""

METRICS: Final = tuple(map(metric_of, read_table(__name__, "metrics.txt")))
"""All metrics of a server about itself."""


class ServerMetrics:
    """Records what a server does. Thread-safe.

    Args:
        provider: Whose metrics they are; the global one by default.
    """

    def __init__(self, provider: AnyMeterProvider | None = None) -> None:
        self._meter = get_meter("otel_loopguard", __version__, provider)
        self._metrics = {metric.name: metric for metric in METRICS}
        self._put: dict[str, Callable[[float, dict[str, str | int]], None]] = {}
        for metric in METRICS:
            if metric.type == "histogram":
                self._put[metric.name] = self._meter.create_histogram(
                    metric.name, metric.unit, metric.about,
                    explicit_bucket_boundaries_advisory=metric.bounds,
                ).record  # fmt: skip
            elif metric.type == "counter":
                made = self._meter.create_counter(metric.name, metric.unit, metric.about)
                self._put[metric.name] = made.add
        for cause in get_args(Cause):
            self.add(semconv.METRIC_SERVER_REFUSALS, 0, cause)  # the first one is an increase

    def add(self, metric: str, amount: float, *key: str | int) -> None:
        """Counts, or records a value of a histogram.

        Args:
            metric: Name of the metric.
            amount: The count, or the value in the unit of the metric.
            key: Values of its first attributes, in its order; an empty one is left out.
        """
        self._put[metric](amount, self._attributes(metric, key))

    def watch(self, metric: str, look: Callable[[], float | Mapping[str, float]]) -> None:
        """Sets what is read when a metric of the present is collected, by its attribute if any."""
        of = self._metrics[metric]

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            found = look()
            values = found.items() if isinstance(found, Mapping) else [("", found)]
            return [Observation(value, self._attributes(metric, [key])) for key, value in values]

        self._meter.create_observable_up_down_counter(metric, [observe], of.unit, of.about)

    def _attributes(self, metric: str, key: Iterable[str | int]) -> dict[str, Any]:
        names = self._metrics[metric].attributes
        return {name: value for name, value in zip(names, key, strict=False) if value != ""}


EXPORTER: Final = "OTEL_METRICS_EXPORTER"
_GROUP: Final = "opentelemetry_metrics_exporter"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_LAST_MS: Final = 5_000
"""For the last export when the server ends: as long as its requests have."""


class ServerTelemetry:
    """Metrics of a server: read by Prometheus, and exported where `OTEL_*` say.

    Without `OTEL_METRICS_EXPORTER`, and without an endpoint for OTLP, nothing is exported.

    Raises:
        LoopGuardSettingsError: An exporter is not installed, or cannot be made.

    Attributes:
        provider: The meter provider.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lock = threading.Lock()
        own = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)
        readers = [own, *map(_reader, _exporters())]
        self.provider = MeterProvider(readers, _resource(), shutdown_on_exit=False)

    @classmethod
    def unless_set_up(cls) -> ServerTelemetry | None:
        """Returns None where the process has a meter provider: `opentelemetry-instrument` does."""
        return None if isinstance(get_meter_provider(), MeterProvider) else cls()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Returns all metrics as text for Prometheus, and its media type.

        Args:
            accept: The media types that the client takes, as in its header.
        """
        encode, media = choose_encoder(accept)
        with self._lock:  # the reader keeps what it collects until it is written
            return encode(self._registry), media

    def close(self) -> None:
        """Exports once more, for five seconds at most."""
        self.provider.shutdown(_LAST_MS)


def _exporters() -> Iterator[str]:
    """The names of exporters that are asked for."""
    names = os.environ.get(EXPORTER, "").strip()
    if not names and any(map(os.environ.get, _ENDPOINTS)):
        names = "otlp"
    if sdk_disabled():
        names = ""
    for name in filter(None, map(str.strip, names.split(","))):
        if name == "otlp":
            protocol = next(filter(None, map(os.environ.get, _PROTOCOLS)), "")
            # `http/protobuf` or `grpc`; without one it is the package's own choice.
            yield f"otlp_proto_{protocol.partition('/')[0]}" if protocol else name
        elif name != "none":
            yield name


def _reader(name: str) -> MetricReader:
    asked = f"{EXPORTER} = {os.environ.get(EXPORTER, 'otlp')!r:.100}"
    found = next(iter(entry_points(group=_GROUP, name=name)), None)
    if found is None:
        msg = f"{asked}: no exporter of metrics that is installed is called {name!r:.100}"
        raise LoopGuardSettingsError(msg)
    try:
        made: Any = found.load()()
    except Exception as error:
        msg = f"{asked}: {name} cannot be used: {type(error).__name__}: {error}"
        raise LoopGuardSettingsError(msg) from error
    return made if isinstance(made, MetricReader) else PeriodicExportingMetricReader(made)


def _resource() -> Resource:
    """Resource of `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`, with our defaults."""
    # Workers of a fleet count apart: the sum of their series is theirs.
    own = Resource({"service.version": __version__, "service.instance.id": str(uuid.uuid4())})
    found = own.merge(Resource.create())
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "otel-loopguard"}))
    return found


QUIET_S: Final = 60.0
"""Seconds without a trouble after which it is over: exporters try again within that."""
LATE_S: Final = 2.0
"""From the end of a step to its judgement: below the 5 s that exporters wait by default, above the
0.2 s that they should, `--lateness`, and what a busy machine adds."""
# As many as `max_sessions` by default; who is forgotten is noted again with the next late step.
_LATE_SESSIONS: Final = 10_000
_ADVICE: Final = (
    "export spans sooner (OTEL_BSP_SCHEDULE_DELAY=200 for the agent), or compare the clocks of "
    "agent and server"
)
_BLIND: Final = 30
"""Questions about a session without a span of it; a loop has made some call by then."""
_SENDS_S: Final = 10.0
"""Seconds since the first of them: twice as long as exporters wait for a batch by default."""
_NEVER: Final = (
    f"{_BLIND} questions about this session, and no span of it has come; the agent's spans need "
    "this server (OTEL_EXPORTER_OTLP_ENDPOINT), the same token, this session as "
    "gen_ai.conversation.id, and a short batch delay (OTEL_BSP_SCHEDULE_DELAY=200)"
)


@dataclass(slots=True)
class _Episode:
    """A trouble, from its first time on."""

    why: str
    first: float
    last: float = 0.0
    count: int = 0


class TroubleLog:
    """Logs a trouble once when it begins, and once when it is over: how often, and how long.

    Args:
        what: What happens then, as `requests are refused`.
        count: Called with the cause each time.
        log: Where.
    """

    def __init__(
        self, what: str, count: Callable[[str], object] | None = None, log: Log = logger
    ) -> None:
        self._log = log
        self._what = what
        self._count = count
        self._episodes: dict[str, _Episode] = {}

    def note(self, cause: str, why: str) -> None:
        """Notes that it happens.

        Args:
            cause: One of few names, whatever is sent.
            why: What the log says about it.
        """
        now = time.monotonic()
        episode = self._episodes.get(cause)
        if episode is None:
            episode = self._episodes[cause] = _Episode(why, now)
            self._log.warning("%s: %s (%s; told again when it is over)", self._what, why, cause)
        episode.count += 1
        episode.last = now
        if self._count is not None:
            self._count(cause)

    def newest(self, cause: str, within_s: float) -> str:
        """Why it happened lately by a cause; empty if it did not."""
        episode = self._episodes.get(cause)
        if episode is None or time.monotonic() - episode.last >= within_s:
            return ""
        return episode.why

    def tick(self) -> None:
        """Logs what is over."""
        now = time.monotonic()
        for cause, episode in list(self._episodes.items()):
            if now - episode.last >= QUIET_S:
                del self._episodes[cause]
                self._end(f"over for {QUIET_S:g} s", cause, episode)

    def close(self) -> None:
        """Logs what is not over when the server ends."""
        while self._episodes:
            self._end("the server ends", *self._episodes.popitem())

    def _end(self, now: str, cause: str, episode: _Episode) -> None:
        often = f"{episode.count} times within {episode.last - episode.first:.0f} s"
        often = "once" if episode.count == 1 else often
        self._log.warning("%s: %s: %s (%s, %s)", now, self._what, episode.why, cause, often)


class Lateness:
    """Notes sessions whose runtime asks, and went on before their steps were judged, or come.

    Of sessions that nobody asks for it does not matter. Steps are noted by one thread, questions by
    another; both are read by any.

    Args:
        guard: The guard that judges them.
    """

    def __init__(self, guard: Engine) -> None:
        self._guard = guard
        self._late_s: BoundedDict[str, float] = BoundedDict(_LATE_SESSIONS)
        # The end of a session's last late step, and when it was judged.
        self._last: BoundedDict[str, tuple[int, int]] = BoundedDict(_LATE_SESSIONS)
        self._unseen: BoundedDict[str, tuple[int, float]] = BoundedDict(_LATE_SESSIONS)
        self.log = TroubleLog("agents hear of decisions too late", log=guard.log)

    def note(self, steps: Iterable[tuple[int, Step]]) -> None:
        """Notes the steps of a batch once they are judged.

        Args:
            steps: Of each its trace, and itself.
        """
        now = time.time_ns()
        ended: dict[str, int] = {}
        began: dict[str, int] = {}
        for trace_id, step in steps:
            if step.end is None or (not self._late_s and now - step.end < LATE_S * 1e9):
                continue
            flag = self._guard.flag_of(step.session or trace_id)
            if flag is None or not flag.asked:
                continue
            session = flag.control.session or ""
            ended[session] = min(step.end, ended.get(session, step.end))
            began[session] = max(step.start or 0, began.get(session, 0))
        for session, end in ended.items():
            late_s = (now - end) / 1e9
            if late_s < LATE_S:
                self._late_s.pop(session, None)
                continue
            last, judged = self._last.get(session, (end, now))
            self._last[session] = end, now
            # The next step, of which nobody could warn, comes in the same request or in another.
            if began[session] >= end or last <= began[session] < judged:
                self._late_s[session] = late_s
                self.log.note("late", f"a step was judged {late_s:.1f} s after its end; {_ADVICE}")

    def asked(self, session: str) -> None:
        """Counts a question about a session of which no span has come."""
        if self._guard.flag_of(session) is None:
            asked, since = self._unseen.get(session, (0, time.monotonic()))
            self._unseen[session] = asked + 1, since

    def warning(self, session: str) -> str | None:
        """Warning for the runtime of a session whose steps are judged late, or never come."""
        asked, since = self._unseen.get(session, (0, 0.0))
        silent = asked >= _BLIND and time.monotonic() - since >= _SENDS_S
        if silent and self._guard.flag_of(session) is None:
            return _NEVER
        late_s = self._late_s.get(session)
        if late_s is None:
            return None
        return f"steps are judged up to {late_s:.1f} s after their end, too late to warn; {_ADVICE}"
