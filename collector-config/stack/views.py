"""What Jaeger, Prometheus and the decision log have, as the stack's users ask for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stack.web import get

_HOUR_S = 3600


@dataclass(frozen=True)
class Seen:
    """One span as Jaeger shows it.

    Attributes:
        id: Its id, 16 hex digits.
        trace: Id of its trace, 32 hex digits.
        name: Its name.
        start: Microseconds since the epoch.
        tags: Its attributes, by name.
        warnings: What Jaeger shows as warnings.
        events: Names of its events, in order.
        references: Type and span id of what it refers to, in Jaeger's order.
    """

    id: str
    trace: str
    name: str
    start: int
    tags: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    references: tuple[tuple[str, str], ...] = ()

    @property
    def links(self) -> int:
        """How many spans it refers to beside its parent."""
        return sum(kind == "FOLLOWS_FROM" for kind, _ in self.references)

    @property
    def red(self) -> bool:
        """Whether Jaeger draws it red: its status is ERROR."""
        return self.tags.get("error") is True and self.tags.get("otel.status_code") == "ERROR"


def traces(
    port: int, service: str, tags: Mapping[str, str] | None = None, limit: int = 1500
) -> list[list[Seen]]:
    """Traces of a service by Jaeger's search, newest first; all that was sent in the last hour.

    Args:
        port: Where Jaeger answers queries.
        service: `service.name`.
        tags: Attributes that one span of the trace must have.
        limit: How many traces at most.
    """
    now = time.time()
    query = {"service": service, "limit": str(limit), "lookback": "custom"}
    query |= {"start": f"{now - _HOUR_S:.6f}".replace(".", ""), "end": f"{now + 60:.6f}"}
    query["end"] = query["end"].replace(".", "")
    if tags:
        query["tags"] = json.dumps(dict(tags))
    return [_spans(each) for each in get(port, "/api/traces", 30, **query)["data"]]


def trace(port: int, trace_id: str) -> list[Seen]:
    """The spans of one trace, by start."""
    (found,) = get(port, f"/api/traces/{trace_id}")["data"]
    return _spans(found)


def _spans(found: dict[str, Any]) -> list[Seen]:
    return sorted((_span(each) for each in found["spans"]), key=lambda span: span.start)


def _span(found: dict[str, Any]) -> Seen:
    events = [{pair["key"]: pair["value"] for pair in log["fields"]} for log in found["logs"] or ()]
    return Seen(
        id=found["spanID"],
        trace=found["traceID"],
        name=found["operationName"],
        start=found["startTime"],
        tags={tag["key"]: tag["value"] for tag in found["tags"]},
        warnings=tuple(found["warnings"] or ()),
        events=tuple(str(event.get("event", "")) for event in events),
        references=tuple((ref["refType"], ref["spanID"]) for ref in found["references"] or ()),
    )


def total(port: int, query: str) -> float:
    """The sum of what a query of Prometheus gives; 0 for nothing."""
    found = get(port, "/api/v1/query", query=query)["data"]["result"]
    return sum(float(each["value"][1]) for each in found)


def events(log: Path) -> Iterator[dict[str, Any]]:
    """The log events in a decision log and the files it was rotated to, oldest first.

    Each has `name`, `severity`, `trace`, `span`, `body` and its attributes by name. A line may be
    torn where the Collector was killed while it wrote; what was in it is sent again.
    """
    for path in sorted(
        log.parent.glob(f"{log.stem}*{log.suffix}"), key=lambda p: p.stat().st_mtime
    ):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from _events(line)


def _events(line: str) -> Iterator[dict[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    while 0 <= place < len(line):
        try:
            request, end = decoder.raw_decode(line, place)
        except json.JSONDecodeError:
            place = line.find('{"resourceLogs"', place + 1)
            continue
        place = end
        for resource in request["resourceLogs"]:
            for scope in resource["scopeLogs"]:
                yield from (_event(record) for record in scope["logRecords"])


def _event(record: dict[str, Any]) -> dict[str, Any]:
    read = {pair["key"]: next(iter(pair["value"].values()), None) for pair in record["attributes"]}
    return {
        **read,
        "name": record.get("eventName", ""),
        "severity": record.get("severityText", ""),
        "trace": record.get("traceId", ""),
        "span": record.get("spanId", ""),
        "body": record.get("body", {}).get("stringValue", ""),
    }
