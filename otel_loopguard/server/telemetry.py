"""The OpenTelemetry SDK of `serve`, from the variables `OTEL_*`, and what Prometheus reads."""

from __future__ import annotations

import os
import threading
import uuid
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
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
    """What `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` say, above names of our own."""
    # Workers of a fleet count apart: the sum of their series is theirs.
    own = Resource({"service.version": __version__, "service.instance.id": str(uuid.uuid4())})
    found = own.merge(Resource.create())
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "otel-loopguard"}))
    return found
