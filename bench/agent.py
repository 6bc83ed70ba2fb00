"""What an agent pays for its spans, and what the process pays for all of them.

An agent is not a loop of spans: between two calls stands a model, which takes seconds. So spans
come in short bursts with pauses, in which other threads get their turn. Two figures, both over the
SDK alone in the same round:

* `agent`: CPU of the thread that makes the spans;
* `process`: CPU of the process, until `force_flush()` has judged everything.

Hooks are timed one by one, by the CPU of their thread.
"""

from __future__ import annotations

import gc
import statistics
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider

from bench.spans import bare
from otel_loopguard import LoopGuardSpanProcessor

if TYPE_CHECKING:
    from bench.spans import Run

ROUNDS, BURSTS, SPANS = 11, 8, 100
PAUSE_S = 0.1
"""Longer than the guard waits before it judges by itself: shorter than any model call."""


class Timed(LoopGuardSpanProcessor):
    """The processor, with the CPU of each hook."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.taken = array("q")

    def on_start(self, *given: Any, **named: Any) -> None:
        began = time.thread_time_ns()
        super().on_start(*given, **named)
        self.taken.append(time.thread_time_ns() - began)

    def on_end(self, *given: Any, **named: Any) -> None:
        began = time.thread_time_ns()
        super().on_end(*given, **named)
        self.taken.append(time.thread_time_ns() - began)


def watched() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    return provider


def paid(work: Callable[[TracerProvider], Run]) -> dict[str, float]:
    """Both figures of a set of spans, as median ratios and in microseconds."""
    providers = {"sdk": bare(), "guard": watched()}
    runs = {name: work(provider) for name, provider in providers.items()}
    for run in runs.values():
        run(2 * SPANS)
    agent: dict[str, list[float]] = {name: [] for name in runs}
    process: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            gc.collect()
            providers[name].force_flush()
            own, made, began = 0.0, 0, time.process_time()
            for _ in range(BURSTS):
                since = time.thread_time()
                made += run(SPANS)
                own += time.thread_time() - since
                time.sleep(PAUSE_S)
            providers[name].force_flush()
            agent[name].append(own / made * 1e6)
            process[name].append((time.process_time() - began) / made * 1e6)
    found: dict[str, float] = {}
    for figure, taken in (("agent", agent), ("process", process)):
        ratios = [mine / base for mine, base in zip(taken["guard"], taken["sdk"], strict=True)]
        found[f"{figure}_us"] = round(statistics.median(taken["guard"]), 2)
        found[f"{figure}_over_sdk"] = round(statistics.median(ratios), 3)
    found["sdk_us"] = round(statistics.median(agent["sdk"]), 2)
    providers["guard"].shutdown()
    return found


def hooks(work: Callable[[TracerProvider], Run]) -> dict[str, float]:
    """Microseconds of CPU of a hook: median, 99 %, 99.9 %, and the worst."""
    processor = Timed()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    run = work(provider)
    run(2 * SPANS)
    del processor.taken[:]
    for _ in range(10 * BURSTS):
        run(SPANS)
        time.sleep(PAUSE_S)
    ordered = sorted(processor.taken)
    processor.shutdown()
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "worst": 1.0}
    last = len(ordered) - 1
    return {
        f"hook_{name}_us": round(ordered[int(last * part)] / 1e3, 1) for name, part in at.items()
    }


if __name__ == "__main__":
    from bench.spans import SETS

    for name, work in SETS.items():
        print(name, paid(work) | hooks(work), flush=True)
