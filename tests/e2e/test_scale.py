"""Two layers: one Collector in front of several keeps every trace whole, and loses nothing."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import pytest
from stack.builds import BALANCER, COLLECTOR
from stack.ports import Ports
from stack.programs import wait_for
from stack.stack import Pace, Stack

from tests.e2e.running import EXPORT, Sink, need
from tests.server.serving import call, request

SPANS: Final = 20_000
PER_TRACE: Final = 40
PER_REQUEST: Final = 400


def requests() -> list[bytes]:
    """Spans of many agents at once: those of one trace are spread over all requests."""
    numbers = list(range(SPANS))
    random.Random(1).shuffle(numbers)
    spans = [
        call(number, trace_id=(number // PER_TRACE + 1).to_bytes(16, "big")) for number in numbers
    ]
    parts = (spans[begin : begin + PER_REQUEST] for begin in range(0, SPANS, PER_REQUEST))
    return [request(*part).SerializeToString() for part in parts]


def send(port: int, sent: list[bytes]) -> None:
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
    send(port, requests())
    wait_for(lambda: sum(len(sink.spans) for sink in sinks) >= SPANS, "all spans came", 120)
    found = [[(span.trace_id, span.span_id) for _, span in sink.spans] for sink in sinks]
    assert sum(map(len, found)) == SPANS == len({span for each in found for _, span in each})
    homes = [{trace for trace, _ in each} for each in found]
    assert all(homes)
    assert sum(map(len, homes)) == SPANS // PER_TRACE == len(set().union(*homes))
