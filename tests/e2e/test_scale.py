"""Two layers: one Collector in front of several keeps every trace whole, and loses nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from stack.builds import BALANCER, COLLECTOR
from stack.ports import Ports
from stack.programs import wait_for
from stack.stack import Pace, Stack

from tests.e2e.running import EXPORT, REPORT, Sink, need

SPANS: Final = 60_000
PER_TRACE: Final = 40
PER_REQUEST: Final = 400


def requests() -> list[bytes]:
    """Spans of many agents at once: those of one trace are spread over all requests."""
    now = time.time_ns()
    named = [KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value="execute_tool"))]
    spans = [
        Span(
            trace_id=(trace + 1).to_bytes(16, "big"),
            span_id=(trace * PER_TRACE + number + 1).to_bytes(8, "big"),
            name="execute_tool search",
            start_time_unix_nano=now,
            end_time_unix_nano=now + 1,
            attributes=named,
        )
        for trace in range(SPANS // PER_TRACE)
        for number in range(PER_TRACE)
    ]
    random.Random(1).shuffle(spans)
    return [_request(spans[begin : begin + PER_REQUEST]) for begin in range(0, SPANS, PER_REQUEST)]


def _request(spans: list[Span]) -> bytes:
    group = ResourceSpans(resource=Resource(), scope_spans=[ScopeSpans(spans=spans)])
    return ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()


def send(port: int, sent: list[bytes]) -> None:
    """Sends requests, four at a time; all must be accepted."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ThreadPoolExecutor(4) as pool:
        export = channel.unary_unary(EXPORT)
        list(pool.map(lambda each: export(each, timeout=60, wait_for_ready=True), sent))


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Callable[[int], tuple[int, list[Sink]]]]:
    """Starts a Collector in front and some behind: where to send to, and what arrives."""
    need(COLLECTOR, BALANCER)
    stacks: list[Stack] = []
    sinks: list[Sink] = []

    def start(count: int) -> tuple[int, list[Sink]]:
        for number in range(count):
            sinks.append(Sink())
            ports = Ports(**{**vars(Ports.free()), "jaeger_grpc": sinks[-1].port})
            stacks.append(Stack(tmp_path / f"worker-{number}", ports, Pace(sampling_percent=0)))
            stacks[-1].gateway()
        stacks.append(Stack(tmp_path / "front", Ports.free()))
        stacks[-1].balancer([stack.ports.gateway_grpc for stack in stacks[:-1]])
        return stacks[-1].ports.gateway_grpc, sinks

    yield start
    for stack in reversed(stacks):
        stack.stop()
    for sink in sinks:
        sink.stop()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_traces_are_kept_whole_and_nothing_is_lost(
    workers: int, layers: Callable[[int], tuple[int, list[Sink]]]
) -> None:
    """All spans of a trace are at one worker, every worker has some, each span came once."""
    port, sinks = layers(workers)
    sent = requests()
    begun = time.monotonic()
    send(port, sent)
    accepted = time.monotonic() - begun
    wait_for(lambda: sum(len(sink.spans) for sink in sinks) >= SPANS, "all spans came", 120)
    took = time.monotonic() - begun
    found = [[(span.trace_id, span.span_id) for _, span in sink.spans] for sink in sinks]
    lost = SPANS - len({span for each in found for _, span in each})
    REPORT.append(
        f"scale: {workers} workers behind load_balancing: {SPANS} spans, {lost} lost; accepted "
        f"at {SPANS / accepted:,.0f}/s, through at {SPANS / took:,.0f}/s"
    )
    assert lost == 0
    assert sum(map(len, found)) == SPANS
    homes = [{trace for trace, _ in each} for each in found]
    assert all(homes)
    assert sum(map(len, homes)) == SPANS // PER_TRACE == len(set().union(*homes))
