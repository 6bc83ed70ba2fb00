"""Log records of coding agents, from the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.replay.log_records import EVENT, LogRecord, spans_of
from otel_loopguard.server.otlp import attributes_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    from otel_loopguard.spans.views import RecordedSpan

__all__ = ["EVENT", "views_of"]


def views_of(request: ExportLogsServiceRequest) -> list[RecordedSpan]:
    """The records that a dialect may know, each as a span that ends with it."""
    return spans_of(_records(request))


def _records(request: ExportLogsServiceRequest) -> Iterator[LogRecord]:
    for resource in request.resource_logs:
        shared = attributes_of(resource.resource.attributes)
        for group in resource.scope_logs:
            for record in group.log_records:
                yield LogRecord(
                    attributes=attributes_of(record.attributes),
                    resource=shared,
                    scope=group.scope.name,
                    event=record.event_name,
                    body=value_of(record.body),
                    time=record.time_unix_nano or record.observed_time_unix_nano,
                    trace_id=int.from_bytes(record.trace_id, "big"),
                    span_id=int.from_bytes(record.span_id, "big"),
                )
