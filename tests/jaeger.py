"""Traces as Jaeger's page draws them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

References = Mapping[str, Sequence[tuple[str, str]]]
"""By the id of a span of the trace: type and span id of its references, in their order."""


def undrawn(trace: References) -> set[str]:
    """Spans below no root: a parent is the first `CHILD_OF` in the trace, or else the first."""
    below: dict[str | None, list[str]] = {}
    for span, references in trace.items():
        known = sorted(
            ((kind, other) for kind, other in references if other in trace),
            key=lambda each: each[0] != "CHILD_OF",
        )
        below.setdefault(known[0][1] if known else None, []).append(span)
    reached: set[str] = set()
    left = below.get(None, [])
    while left:
        span = left.pop()
        reached.add(span)
        left.extend(below.get(span, ()))
    return set(trace) - reached


def references_of(trace: Mapping[str, Any]) -> References:
    """The references of a trace that Jaeger's API gave."""
    return {
        span["spanID"]: [(ref["refType"], ref["spanID"]) for ref in span["references"] or ()]
        for span in trace["spans"]
    }


def exported(spans: Iterable[ReadableSpan]) -> list[References]:
    """The references that Jaeger gives exported spans, by trace."""
    traces: dict[int, dict[str, list[tuple[str, str]]]] = {}
    for span in spans:
        assert span.context is not None
        found = list(_references(span))
        traces.setdefault(span.context.trace_id, {})[f"{span.context.span_id:016x}"] = found
    return list(traces.values())


def _references(span: ReadableSpan) -> Iterator[tuple[str, str]]:
    if span.parent is not None:
        yield "CHILD_OF", f"{span.parent.span_id:016x}"
    for link in span.links:
        yield "FOLLOWS_FROM", f"{link.context.span_id:016x}"
