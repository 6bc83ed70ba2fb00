"""Log records of agents' work, as span views that the dialects read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from otel_loopguard.server.otlp import attributes_of, value_of
from otel_loopguard.spans.values import identifier
from otel_loopguard.spans.views import RecordedSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

_EVENTS: Final = frozenset((
    "claude_code.tool_result", "claude_code.api_request", "claude_code.assistant_response",
    "claude_code.user_prompt",
    "codex.tool_result", "codex.user_prompt", "codex.sse_event",
    "gemini_cli.tool_call", "gemini_cli.api_response", "gemini_cli.user_prompt",
))  # fmt: skip
EVENT: Final = "event.name"
RESPONSE: Final = "response"
_OWNER: Final = ("session.id", "agent_id")
_SESSIONS: Final = ("gen_ai.conversation.id", "session.id", "conversation.id")
_CALLS: Final = ("tool_use_id", "call_id", "event.sequence")
_MS: Final = 1_000_000
_LONGEST_MS: Final = 7 * 86_400_000


def views_of(request: ExportLogsServiceRequest) -> list[RecordedSpan]:
    """The records that a dialect may know, each as a span that ends with it.

    Claude Code logs what a model wrote right after what it used: both are one model call, where
    they come in one request.
    """
    views: list[RecordedSpan] = []
    asked: dict[tuple[object, ...], RecordedSpan] = {}
    for view in _known(request):
        owner = tuple(view.attributes.get(key) for key in _OWNER)
        if view.name == "claude_code.api_request":
            asked[owner] = view
        elif view.name == "claude_code.assistant_response" and owner in asked:
            found = asked.pop(owner)
            found.attributes = {**found.attributes, RESPONSE: view.attributes.get(RESPONSE)}
            continue
        views.append(view)
    return views


def _known(request: ExportLogsServiceRequest) -> Iterator[RecordedSpan]:
    for resource in request.resource_logs:
        shared = attributes_of(resource.resource.attributes)
        for group in resource.scope_logs:
            for record in group.log_records:
                view = _view(record, group.scope.name, shared)
                if view is not None:
                    yield view


def _view(record: LogRecord, scope: str, shared: dict[str, object]) -> RecordedSpan | None:
    attributes = attributes_of(record.attributes)
    name = _event(record, attributes)
    if name not in _EVENTS:
        return None
    for key in _SESSIONS:
        if key in shared:
            attributes.setdefault(key, shared[key])
    attributes[EVENT] = name
    session = next((found for key in _SESSIONS if (found := identifier(attributes.get(key)))), "")
    end = record.time_unix_nano or record.observed_time_unix_nano
    call = next((found for key in _CALLS if (found := identifier(attributes.get(key)))), str(end))
    # Records of one session are one trace, unless they say which; one that comes again is the same.
    trace_id = int.from_bytes(record.trace_id, "big") or _number(session, 16)
    return RecordedSpan(
        name=name,
        # Not that of the spans, so that a call in both is found to be one.
        scope=f"{scope}.log",
        trace_id=trace_id,
        span_id=_number(f"{session}\n{name}\n{call}", 8),
        parent_id=int.from_bytes(record.span_id, "big") or None,
        start=max(end - _duration(attributes), 1),
        end=end,
        attributes=attributes,
    )


def _event(record: LogRecord, attributes: dict[str, object]) -> str:
    """The name of an event, with the prefix of its agent."""
    # Codex puts a line of its source into the record's own field.
    name = str(attributes.get(EVENT) or record.event_name or value_of(record.body) or "")
    body = value_of(record.body)
    return body if isinstance(body, str) and body.endswith(f".{name}") else name


def _duration(attributes: dict[str, object]) -> int:
    value = attributes.get("duration_ms")
    try:
        found = float(value) if isinstance(value, (int, float, str)) else 0.0
    except ValueError:
        return 0
    return int(found * _MS) if 0 < found < _LONGEST_MS else 0


def _number(text: str, size: int) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1
