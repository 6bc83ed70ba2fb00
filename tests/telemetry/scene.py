"""An agent under a guard whose metrics, log events and spans are kept in memory."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuard, LoopGuardSpanExporter, LoopGuardSpanProcessor, Settings
from tests.agents import provider_with, tool_call

Attributes = Mapping[str, object]


class Scene:
    """A guard, its providers, and what came out, by a `LoopGuardSpanExporter` or without."""

    def __init__(self, *, exporter: bool = True, **settings: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.logs = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        # Five calls of a loop have every rung: one call against the refusal is enough.
        settings = {"abort_after": 2, **settings}
        self.guard = LoopGuard(
            Settings(**settings), meter_provider=self.meters, logger_provider=self.loggers
        )
        self.spans = InMemorySpanExporter()
        out = LoopGuardSpanExporter(self.spans, self.guard) if exporter else self.spans
        self.provider = provider_with(LoopGuardSpanProcessor(self.guard), SimpleSpanProcessor(out))
        self.tracer = self.provider.get_tracer("agent")

    def loop(self, calls: int = 5, tool: str = "search") -> None:
        for _ in range(calls):
            tool_call(self.tracer, tool)

    def metrics(self) -> dict[str, list[tuple[dict[str, object], Any]]]:
        """Every metric that comes out now: attributes and point of each series."""
        data = self.reader.get_metrics_data()
        return {
            metric.name: [(dict(point.attributes), point) for point in metric.data.data_points]
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def values(self, metric: str, *, zeros: bool = False) -> list[tuple[Attributes, float]]:
        """The series of a metric and their values; those that are 0 only if they are wanted."""
        found = self.metrics().get(metric, [])
        return [(labels, point.value) for labels, point in found if zeros or point.value]

    def total(self, metric: str, **labels: object) -> float:
        """The sum of the series of a metric that have these attributes, `__` for a dot."""
        wanted = {name.replace("__", "."): value for name, value in labels.items()}
        return sum(value for found, value in self.values(metric) if wanted.items() <= found.items())

    def events(self, name: str | None = None) -> list[Any]:
        self.guard.settle()
        self.guard.telemetry.close()
        found = [entry.log_record for entry in self.logs.get_finished_logs()]
        return [event for event in found if name in (None, event.event_name)]
