"""Decisions as OTLP log records, for the next hop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard.server.otlp import set_value
from otel_loopguard.telemetry import events
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_loopguard.sessions.observation import DecisionRecord

MOST: Final = 10_000


class DecisionLog:
    """The decisions of one tenant that the next hop has not taken yet; the newest 10,000."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._lock = new_lock()
        self._waiting: BoundedDict[str, LogRecord] = BoundedDict(MOST)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, decision_id: str, record: LogRecord) -> None:
        """Adds a decision."""
        with self._lock:
            self._waiting[decision_id] = record

    def request(self) -> tuple[ExportLogsServiceRequest | None, Sequence[str]]:
        """Returns pending decisions as a request, and their ids for `sent`; None for none."""
        with self._lock:
            records = dict(self._waiting)
        if not records:
            return None, ()
        request = ExportLogsServiceRequest()
        group = request.resource_logs.add(
            resource=Resource(
                attributes=attributes({"service.name": "otel-loopguard", "tenant": self._tenant})
            )
        ).scope_logs.add(scope=InstrumentationScope(name="otel_loopguard", version=__version__))
        group.log_records.extend(records.values())
        return request, tuple(records)

    def sent(self, ids: Sequence[str]) -> None:
        """Removes decisions that the next hop took."""
        with self._lock:
            for decision_id in ids:
                self._waiting.pop(decision_id, None)


def record_of(made: DecisionRecord) -> LogRecord:
    """A decision as a log record."""
    decision = made.decision
    place = events.SpanRef(decision.trace_id, decision.span_id)
    event = events.decided(decision, made.agent, {}, place)
    now = time.time_ns()
    record = LogRecord(
        time_unix_nano=event.time or now,
        observed_time_unix_nano=now,
        severity_number=SeverityNumber.ValueType(event.severity.value),
        severity_text=event.severity.name,
        event_name=event.name,
        attributes=attributes(event.attributes),
    )
    record.body.string_value = event.body
    if place.trace_id and place.span_id:
        record.trace_id = place.trace_id.to_bytes(16, "big")
        record.span_id = place.span_id.to_bytes(8, "big")
    return record


def attributes(values: Mapping[str, events.Value]) -> list[KeyValue]:
    """Attributes as OTLP has them."""
    pairs: list[KeyValue] = []
    for name, value in values.items():
        pair = KeyValue(key=name)
        set_value(pair.value, value)
        pairs.append(pair)
    return pairs
