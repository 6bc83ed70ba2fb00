"""Every metric of `serve` about itself, and what records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from opentelemetry.metrics import Observation, get_meter

from otel_loopguard import semconv
from otel_loopguard.engine import Metric
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, MeterProvider

Cause = Literal[
    "bad_request", "too_large", "slow", "busy", "store", "lease_lost", "next_hop", "token",
    "host", "origin",
]  # fmt: skip
"""Why a request is refused."""

ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS: Final = "rpc.response.status_code"

_SHORT: Final = (5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Of OpenTelemetry's conventions for HTTP, up to the longest wait for a flag."""
_DELAYS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 3600)
"""From `--lateness` over an exporter's usual five seconds to what was queued for an hour."""

METRICS: Final = (
    Metric(
        semconv.METRIC_SERVER_REQUEST_DURATION, "histogram", "s",
        (ROUTE, STATUS, RPC_METHOD, RPC_STATUS),
        "Time from the head of a request to the end of its answer; its count is that of requests. "
        "A wait for a flag lasts as long as it waits.",
        _SHORT,
    ),
    Metric(
        semconv.METRIC_SERVER_REFUSALS, "counter", "{refusal}", (semconv.ERROR_TYPE,),
        "Requests and records that were refused, by cause: `bad_request`, `too_large`, `slow` (the "
        "body did not come), `busy` (too much waits), `store`, `lease_lost`, `next_hop`, `token`, "
        "`host`, `origin`.",
    ),
    Metric(
        semconv.METRIC_SERVER_HELD_USAGE, "updowncounter", "By", (),
        "Bytes of requests that are not answered yet.",
    ),
    Metric(
        semconv.METRIC_SERVER_HELD_LIMIT, "updowncounter", "By", (),
        "Bytes that may be held.",
    ),
    Metric(
        semconv.METRIC_SERVER_JUDGING_DELAY, "histogram", "s", (),
        "Time from the end of a step, by the clock of its host, to when it was judged. The longer, "
        "the later an agent is warned. Of a batch at most 16 steps are sampled.",
        _DELAYS,
    ),
    Metric(
        semconv.METRIC_SERVER_JUDGING_QUEUE_SIZE, "updowncounter", "{span}", (),
        "Spans and log records that wait to be judged.",
    ),
    Metric(
        semconv.METRIC_SERVER_JUDGING_QUEUE_CAPACITY, "updowncounter", "{span}", (),
        "Those that may wait: 20,000 for each tenant.",
    ),
    Metric(
        semconv.METRIC_SERVER_FORWARD_DURATION, "histogram", "s",
        (semconv.SERVER_SIGNAL, semconv.ERROR_TYPE),
        "Time that the next hop took for a request; with `error.type` those that it did not take: "
        "its status, or the exception.",
        _SHORT,
    ),
    Metric(
        semconv.METRIC_SERVER_FORWARD_QUEUE_SIZE, "updowncounter", "{decision}", (),
        "Decisions that the next hop has not taken yet; only with one.",
    ),
    Metric(
        semconv.METRIC_SERVER_FORWARD_QUEUE_CAPACITY, "updowncounter", "{decision}", (),
        "Those that are kept: 10,000 for each tenant.",
    ),
    Metric(
        semconv.METRIC_SERVER_LEASES, "counter", "{lease}", (semconv.SERVER_LEASE,),
        "Leases of sessions: `taken` first, `taken_over` from another worker, or `lost` to one; "
        "only with a store.",
    ),
    Metric(
        semconv.METRIC_SERVER_READY, "updowncounter", "{check}", (semconv.SERVER_CHECK,),
        "1 for each check of `/readyz` that holds, 0 for one that does not. `next_hop` is as its "
        "newest answer was; after one that took nothing it is asked every 15 s.",
    ),
)  # fmt: skip
"""All metrics of a server about itself."""


class ServerMetrics:
    """Records what a server does. Thread-safe.

    Args:
        provider: Whose metrics they are; the global one by default.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
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
