"""Log records of agents and models, as spans that the dialects read.

Claude Code, Codex and gemini-cli tell of their calls by events. A Collector's file exporter writes
them as lines of `resourceLogs`; `otel_loopguard.server` has them from the wire. An event that tells
of a call becomes a span that ends with it and is named after the event; what a record does not say,
as the arguments of a call whose contents are not logged, its step does not know.

The messages of a model call, which OpenTelemetry's Java agent and others log below its span, become
the events of a span below that one. It fetches an answer, and so is no second call of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from otel_loopguard._util.fields import (
    JsonObject,
    Report,
    first,
    identifier,
    mapping,
    numbered,
    rows,
    text,
    time,
)
from otel_loopguard.replay.formats import otlp_attributes, otlp_value
from otel_loopguard.spans.messages import EVENTS as MESSAGES
from otel_loopguard.spans.values import identifier as name_of
from otel_loopguard.spans.views import RecordedSpan

EVENT: Final = "event.name"
_EVENTS: Final = frozenset((
    "claude_code.tool_result", "claude_code.api_request", "claude_code.assistant_response",
    "claude_code.user_prompt",
    "codex.tool_result", "codex.user_prompt", "codex.sse_event",
    "gemini_cli.tool_call", "gemini_cli.api_response", "gemini_cli.user_prompt",
))  # fmt: skip
_AGENTS: Final = tuple({f"{name.partition('.')[0]}." for name in _EVENTS})
_RESPONSE: Final = "response"
_OWNER: Final = ("session.id", "agent_id")
_SESSIONS: Final = ("gen_ai.conversation.id", "session.id", "conversation.id")
_CALLS: Final = ("tool_use_id", "call_id", "event.sequence")
_LONGEST_MS: Final = 7 * 86_400_000
"""A week, the longest that a call is taken to have lasted; more is a mistake."""

_ROOTS: Final = ("resourceLogs", "resource_logs")
_GROUPS: Final = ("scopeLogs", "scope_logs")
_RECORDS: Final = ("logRecords", "log_records")
_TIMES: Final = (
    "timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano",
)  # fmt: skip


@dataclass(slots=True)
class LogRecord:
    """A log record, however it was encoded.

    Attributes:
        attributes: Its own.
        resource: Those of its resource.
        scope: Name of its instrumentation scope.
        event: Its field for the name of an event.
        body: Its body.
        time: When it was written, in nanoseconds since the epoch; 0 if it does not say.
        trace_id: Of the trace that it belongs to; 0 if it does not say.
        span_id: Of the span that it belongs to; 0 if it does not say.
    """

    attributes: JsonObject = field(default_factory=dict[str, object])
    resource: JsonObject = field(default_factory=dict[str, object])
    scope: str = ""
    event: str = ""
    body: object = None
    time: int = 0
    trace_id: int = 0
    span_id: int = 0

    @property
    def name(self) -> str:
        """The name of its event, with the prefix of its agent."""
        # Codex puts a line of its source into the record's own field.
        name = str(self.attributes.get(EVENT) or self.event or self.body or "")
        body = self.body
        return body if isinstance(body, str) and body.endswith(f".{name}") else name

    @property
    def session(self) -> str:
        """Id of its session, by itself or by its resource; empty if neither says it."""
        both = (self.attributes, self.resource)
        said = (name_of(each.get(key)) for key in _SESSIONS for each in both)
        return next(filter(None, said), "")


def spans_of(records: Iterable[LogRecord]) -> list[RecordedSpan]:
    """The records of one export that a dialect may know, each as a span that ends with it.

    Claude Code logs what a model wrote right after what it used: both are one model call, where
    they come in one export. A record that names neither a session nor a trace belongs nowhere.
    """
    spans: list[RecordedSpan] = []
    asked: dict[tuple[object, ...], RecordedSpan] = {}
    told: dict[tuple[int, int], tuple[RecordedSpan, list[tuple[str, JsonObject]]]] = {}
    for record in records:
        name, session = record.name, record.session
        if name in MESSAGES and record.trace_id and record.span_id:
            place = record.trace_id, record.span_id
            if place not in told:
                told[place] = _fetched(record), []
                spans.append(told[place][0])
            fetched, events = told[place]
            events.append((name, {**mapping(record.body), **record.attributes}))
            fetched.events, fetched.end = events, record.time
            continue
        if name not in _EVENTS or not (session or record.trace_id):
            continue
        span = _span(record, name, session)
        owner = tuple(span.attributes.get(key) for key in _OWNER)
        if span.name == "claude_code.api_request":
            asked[owner] = span
        elif span.name == "claude_code.assistant_response" and owner in asked:
            found = asked.pop(owner)
            found.attributes = {**found.attributes, _RESPONSE: span.attributes.get(_RESPONSE)}
            continue
        spans.append(span)
    return spans


def _span(record: LogRecord, name: str, session: str) -> RecordedSpan:
    inherited = {key: record.resource[key] for key in _SESSIONS if key in record.resource}
    attributes = {**inherited, **record.attributes, EVENT: name}
    call = next((found for key in _CALLS if (found := name_of(attributes.get(key)))), record.time)
    return RecordedSpan(
        name=name,
        # Not that of the spans, so that a call in both is found to be one.
        scope=f"{record.scope}.log",
        # Records of one session are one trace, unless they say which; one that comes again is the
        # same.
        trace_id=record.trace_id or numbered(session, 16),
        span_id=numbered(f"{session}\n{name}\n{call}", 8),
        parent_id=record.span_id or None,
        start=max(record.time - _duration(attributes), 1),
        end=record.time,
        attributes=attributes,
    )


def _fetched(record: LogRecord) -> RecordedSpan:
    """A span for the messages of a model call."""
    session = {"gen_ai.conversation.id": record.session} if record.session else {}
    return RecordedSpan(
        name="fetch_response",
        scope=f"{record.scope}.log",
        trace_id=record.trace_id,
        span_id=numbered(f"{record.span_id}\n{record.name}\n{record.time}", 8),
        parent_id=record.span_id,
        start=record.time,
        attributes={"gen_ai.operation.name": "fetch_response", **session},
    )


def _duration(attributes: JsonObject) -> int:
    value = attributes.get("duration_ms")
    try:
        found = float(value) if isinstance(value, (int, float, str)) else 0.0
    except (ValueError, OverflowError):
        return 0
    return int(found * 1e6) if 0 < found < _LONGEST_MS else 0


def is_logs(value: JsonObject) -> bool:
    """True of an export request of log records, in OTLP/JSON."""
    return any(root in value for root in _ROOTS)


def log_spans(document: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The spans of one export request; none, and a report, where no agent is among its records."""
    records = list(_records(document, report))
    of_agents = [one for one in records if one.name.startswith(_AGENTS) or one.name in MESSAGES]
    if not of_agents:
        report("no log record has messages of a model or is of Claude Code, Codex or gemini-cli")
    if any(not (record.session or record.trace_id) for record in of_agents):
        report("a log record has no session id and no trace id")
    yield from spans_of(of_agents)


def _records(document: JsonObject, report: Report) -> Iterator[LogRecord]:
    for resource in rows(document, _ROOTS, report):
        shared = otlp_attributes(mapping(resource.get("resource")).get("attributes"))
        for group in rows(resource, _GROUPS, report):
            scope = text(mapping(group.get("scope")).get("name"))
            for entry in rows(group, _RECORDS, report):
                times = (time(entry.get(name)) for name in _TIMES)
                yield LogRecord(
                    attributes=otlp_attributes(entry.get("attributes")),
                    resource=shared,
                    scope=scope,
                    event=text(first(entry, ("eventName", "event_name"))),
                    body=otlp_value(entry.get("body")),
                    time=next((each for each in times if each), 0),
                    trace_id=identifier(first(entry, ("traceId", "trace_id")), 16),
                    span_id=identifier(first(entry, ("spanId", "span_id")), 8),
                )
