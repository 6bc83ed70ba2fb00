"""Exports of Langfuse, LangSmith and Phoenix, as the spans that they were made of.

Each row becomes a span with the attributes that the product's own instrumentation writes, so that
the dialect of that instrumentation reads it.

Source of the format: langfuse `fern/apis/server/definition` (the API, observations v1 and v2),
`worker/src/features/database-read-stream` (export from a table of the page),
`web/src/features/traces/fns/downloadTrace.ts` (a trace of the page) and
langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields (export to a bucket,
with names in snake_case).

Source of the format: docs.langchain.com/langsmith/run-data-format, and langsmith 0.15.0
`_internal/otel/_otel_exporter.py` for the attributes that a run has as a span.

Source of the format: phoenix `src/phoenix/trace/dsl/query.py` (`get_spans_dataframe`, whose columns
are the fields of a span with `attributes.` before those of the conventions, the others nested) and
the rows of `GET /v1/projects/{project}/spans`, both of 20.26.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from otel_loopguard._util.fields import (
    JsonObject,
    Report,
    first,
    identifier,
    instant,
    is_list,
    is_map,
    mapping,
    numbered,
    rows,
    sequence,
    text,
)
from otel_loopguard.replay.formats import console_spans, known
from otel_loopguard.spans.values import parsed
from otel_loopguard.spans.views import RecordedSpan

SpanReads = Callable[[JsonObject, Report], Iterator[RecordedSpan]]
"""Reads the spans that a JSON object holds, and reports what it passes over."""

Format = tuple[Callable[[JsonObject], bool], SpanReads]
"""Tells whether a JSON object is in a format, and reads it."""

_THREADS: Final = ("session_id", "thread_id")
"""Keys of a conversation in LangChain's metadata."""

_OBSERVATIONS: Final = "observations"
_TRACE: Final = ("traceId", "trace_id")
_STARTS: Final = ("startTime", "start_time")
_SESSION: Final = ("sessionId", "session_id")
_LANGFUSE: Final[Mapping[str, Sequence[str]]] = {
    "level": ("level",),
    "status_message": ("statusMessage", "status_message"),
    "model.name": ("providedModelName", "provided_model_name", "model"),
    "usage_details": ("usageDetails", "usage_details", "usage"),
    "cost_details": ("costDetails", "cost_details"),
}
"""Fields of an observation by the attribute that its span has them in."""


def is_langfuse(value: JsonObject) -> bool:
    """True of an observation of Langfuse, and of a trace with its observations."""
    return _OBSERVATIONS in value or (
        "type" in value
        and any(name in value for name in _TRACE)
        and any(name in value for name in _STARTS)
    )


def langfuse_spans(value: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The spans of a trace, or of one observation."""
    if _OBSERVATIONS not in value:
        yield from known(_observation(value, {}), report)
        return
    trace = mapping(value.get("trace")) or value
    for row in rows(value, (_OBSERVATIONS,), report):
        yield from known(_observation(row, trace), report)


def _observation(row: JsonObject, trace: JsonObject) -> RecordedSpan:
    kind = text(row.get("type")).lower()
    start = instant(first(row, _STARTS))
    end = instant(first(row, ("endTime", "end_time")))
    metadata = mapping(parsed(row.get("metadata")))
    facts = {**mapping(parsed(trace.get("metadata"))), **metadata}
    prefix = "langfuse.observation."
    said = {f"{prefix}{key}": first(row, names) for key, names in _LANGFUSE.items()}
    # Langfuse 4 keeps contents in columns without null: empty text may be none at all.
    said |= {f"{prefix}{key}": row.get(key) for key in ("input", "output") if row.get(key) != ""}
    said |= {f"{prefix}metadata.{key}": fact for key, fact in metadata.items()}
    said |= {f"langfuse.trace.metadata.{key}": facts.get(key) for key in _THREADS}
    said["langfuse.session.id"] = first(row, _SESSION) or first(trace, _SESSION)
    return RecordedSpan(
        name=text(row.get("name")),
        scope=text(mapping(parsed(metadata.get("scope"))).get("name")) or "langfuse",
        trace_id=_id(first(row, _TRACE) or trace.get("id"), 16),
        span_id=_id(row.get("id"), 8),
        parent_id=_id(first(row, ("parentObservationId", "parent_observation_id")), 8) or None,
        start=start or end,
        end=end or (start if kind == "event" else None),
        attributes={f"{prefix}type": kind, **_present(said)},
        status="error" if row.get("level") == "ERROR" else "unset",
        description=text(first(row, _LANGFUSE["status_message"])) or None,
    )


def _id(value: object, size: int) -> int:
    """An id of OpenTelemetry, or the number of one that a program made up; 0 if there is none."""
    written = text(value)
    return identifier(written, size) or (numbered(written, size) if written else 0)


def _present(attributes: JsonObject) -> dict[str, object]:
    return {key: value for key, value in attributes.items() if value is not None}


def is_langsmith(value: JsonObject) -> bool:
    """True of a run of LangSmith."""
    return "run_type" in value and "id" in value


def langsmith_spans(run: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The spans of a run, and of the runs that are nested in it."""
    waiting = [run]
    while waiting:
        one = waiting.pop()
        waiting.extend(rows(one, ("child_runs",), report))
        yield from known(_run(one), report)


def _run(run: JsonObject) -> RecordedSpan:
    kind, name = text(run.get("run_type")), text(run.get("name"))
    start, end = instant(run.get("start_time")), instant(run.get("end_time"))
    extra = mapping(parsed(run.get("extra")))
    metadata = mapping(parsed(extra.get("metadata")))
    asked = mapping(parsed(extra.get("invocation_params")))
    error = text(run.get("error"))
    said: dict[str, object] = {
        "langsmith.span.kind": kind,
        "gen_ai.request.model": first(asked, ("model", "model_name")),
        "gen_ai.usage.input_tokens": run.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": run.get("completion_tokens"),
        "gen_ai.usage.cost": run.get("total_cost"),
        # Hidden inputs and outputs leave an empty map.
        "gen_ai.prompt": run.get("inputs") or None,
        "gen_ai.completion": run.get("outputs") or None,
        "gen_ai.tool.name": (name or None) if kind == "tool" else None,
        "gen_ai.tool.call.id": first(extra, ("tool_call_id",)) or metadata.get("tool_call_id"),
    }
    said |= {f"langsmith.metadata.{key}": fact for key, fact in metadata.items()}
    return RecordedSpan(
        name=name,
        scope="langsmith",
        trace_id=_uuid(run.get("trace_id") or run.get("id")),
        span_id=_span_id(run.get("id")),
        parent_id=_span_id(_parent(run)) or None,
        start=start or end,
        end=end or None,
        attributes=_present(said),
        status="error" if error else "unset",
        description=error or None,
    )


def _parent(run: JsonObject) -> object:
    """Id of the run above; `dotted_order` says it where the field was not exported."""
    above = text(run.get("dotted_order")).split(".")[:-1]
    return run.get("parent_run_id") or (above[-1].rpartition("Z")[2] if above else None)


def _uuid(value: object) -> int:
    try:
        return UUID(text(value)).int
    except ValueError:
        return 0


def _span_id(value: object) -> int:
    """The span id of a run: LangSmith makes the id of a run from it by zeros before it."""
    return _uuid(value) & 0xFFFF_FFFF_FFFF_FFFF


_ROW: Final = "context.span_id"
_COLUMN: Final = "attributes."
_METADATA: Final = "metadata"
_KIND: Final = "openinference.span.kind"
_DEPTH: Final = 64
"""Levels of nested attributes that are taken apart, as of values in OTLP."""


def is_phoenix(value: JsonObject) -> bool:
    """True of a span of Phoenix: a row of its dataframe, or as its API gives it."""
    return "span_kind" in value and (_ROW in value or is_map(value.get("context")))


def phoenix_spans(row: JsonObject, report: Report) -> Iterator[RecordedSpan]:
    """The span of one row."""
    if is_map(row.get(_ROW)):
        report('the table is by columns, expected its rows: to_json(orient="records", lines=True)')
        return
    entry = dict(row)
    nested = {
        key.removeprefix(_COLUMN): value for key, value in row.items() if key.startswith(_COLUMN)
    }
    if _ROW in row:
        ids = {key: row.get(f"context.{key}") for key in ("trace_id", "span_id")}
        entry |= {"context": ids, "attributes": nested}
    attributes = dict(_flat("", mapping(entry.get("attributes")), 0))
    # Phoenix takes the text of LangChain's metadata apart.
    start = f"{_METADATA}."
    facts = {key: attributes.pop(key) for key in [*attributes] if key.startswith(start)}
    if facts:
        attributes[_METADATA] = json.dumps({key[len(start) :]: facts[key] for key in facts})
    kind = text(row.get("span_kind"))
    if kind not in ("", "UNKNOWN"):
        attributes.setdefault(_KIND, kind)
    entry |= {
        "attributes": attributes,
        "status": {"status_code": row.get("status_code"), "description": row.get("status_message")},
    }
    yield from console_spans(entry, report)


def _flat(name: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    """The attributes that were nested, by their whole names, with places in lists of maps."""
    inner: JsonObject = mapping(value)
    if is_list(value) and any(is_map(item) for item in sequence(value)):
        inner = {str(place): item for place, item in enumerate(sequence(value))}
    if inner and depth < _DEPTH:
        for key, each in inner.items():
            yield from _flat(f"{name}.{key}" if name else key, each, depth + 1)
    elif value is not None:
        yield name, value


EXPORTS: Final[tuple[Format, ...]] = (
    (is_phoenix, phoenix_spans),
    (is_langsmith, langsmith_spans),
    (is_langfuse, langfuse_spans),
)
"""The formats of rows, the first that fits."""


def export_reader_of(row: JsonObject) -> SpanReads | None:
    """The reader of a row of an export; None if its format is not known."""
    return next((reads for fits, reads in EXPORTS if fits(row)), None)
