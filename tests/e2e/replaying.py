"""Recorded spans as if they were made just now: `python -m tests.e2e.replaying FILE`."""

import argparse
import time
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from stack.agent import Telemetry

from otel_loopguard.dialects import RecordedSpan
from tests.dialects.captures import spans_in


def replay(spans: list[RecordedSpan], provider: TracerProvider) -> None:
    """Starts and ends real spans in the order of the recorded ones; the last ends now."""
    shift = time.time_ns() - max(span.end or 0 for span in spans)
    moments: list[tuple[Any, ...]] = []
    for span in spans:
        end = span.end or span.start
        moments.append((span.start, 1, -end, id(span), span))
        moments.append((end, 0 if end > span.start else 2, -span.start, id(span), span))
    open_: dict[int, trace.Span] = {}
    for at, *_, span in sorted(moments):
        if span.span_id in open_:
            _end(open_[span.span_id], span, at + shift)
            continue
        above, tracer = open_.get(span.parent_id or 0), provider.get_tracer(span.scope)
        context = trace.set_span_in_context(above) if above else Context()
        said = {"kind": SpanKind[span.kind], "attributes": span.attributes}
        open_[span.span_id] = tracer.start_span(span.name, context, **said, start_time=at + shift)


def _end(live: trace.Span, span: RecordedSpan, at: int) -> None:
    for name, attributes in span.events:
        live.add_event(name, attributes, at)
    if span.status != "unset":
        live.set_status(Status(StatusCode[span.status.upper()], span.description))
    live.end(at)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--service", required=True)
    parser.add_argument("--protocol", required=True)
    given = parser.parse_args()
    telemetry = Telemetry(given.service, given.protocol)
    replay(spans_in(given.file), telemetry.provider)
    telemetry.close()


if __name__ == "__main__":
    main()
