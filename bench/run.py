"""Speed and memory of the guard, side by side with the SDK alone, in one run.

`make bench` prints a table and writes `bench/results.json`. Times are medians over repetitions
that take turns, so that a machine that slows down slows down both sides; what counts is the ratio.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import time
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, execution
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Recording, SpanReplay
from otel_loopguard.spans.reader import Reader

HERE = Path(__file__).resolve().parent
TRAIL = HERE.parent.parent / "shared" / "traces" / "trail.otlp.jsonl.gz"
ROUNDS, SPANS = 15, 2_000
MANY = "a hook, until there are 10,000 sessions of 40 steps"

WORDS = "the weather in Paris is mild with some rain later and a light wind from the west".split()
RESULT = " ".join(itertools.islice(itertools.cycle(WORDS), 60))


class Discard(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class Nowhere(MetricExporter):
    def export(self, *_: object, **__: object) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, *_: object, **__: object) -> None:
        pass


def tool_spans(provider: TracerProvider) -> Callable[[int], None]:
    """GenAI tool spans under an agent span, every call with other arguments and results."""
    tracer = provider.get_tracer("bench.agent")

    def run(count: int) -> None:
        with tracer.start_as_current_span(
            "invoke_agent bench",
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "bench"},
        ):
            for number in range(count):
                with tracer.start_as_current_span(
                    "execute_tool search",
                    attributes={
                        "gen_ai.operation.name": "execute_tool",
                        "gen_ai.tool.name": "search",
                        "gen_ai.tool.call.id": f"call_{number}",
                        "gen_ai.agent.name": "bench",
                        "gen_ai.conversation.id": "bench-1",
                        "gen_ai.tool.call.arguments": f'{{"query": "city {number}", "n": 5}}',
                    },
                ) as span:
                    span.set_attribute("gen_ai.tool.call.result", f"{RESULT} {number}")

    return run


def other_spans(scope: str) -> Callable[[TracerProvider], Callable[[int], None]]:
    def make(provider: TracerProvider) -> Callable[[int], None]:
        tracer = provider.get_tracer(scope)
        attributes = {"http.request.method": "GET", "url.full": "http://x.test/", "server.port": 80}

        def run(count: int) -> None:
            for _ in range(count):
                with tracer.start_as_current_span("GET", attributes=attributes) as span:
                    span.set_attribute("http.response.status_code", 200)

        return run

    return make


def bare() -> TracerProvider:
    return TracerProvider()


def batched() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Discard()))
    return provider


def guarded() -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor())
    return provider


def both() -> TracerProvider:
    provider = batched()
    provider.add_span_processor(LoopGuardSpanProcessor())
    return provider


@contextmanager
def redis() -> Iterator[str | None]:
    """The address of a Redis that is started for this; None where there is none."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = [program, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
    with subprocess.Popen(args, stdout=subprocess.DEVNULL) as server:
        time.sleep(1)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


def stored() -> dict[str, float]:
    """A tool span with a store in Redis, over one with none; empty without a redis-server."""
    with redis() as url:
        if url is None:
            return {}
        guards: list[LoopGuard] = []

        def backed() -> TracerProvider:
            guards.append(LoopGuard(Settings(store_url=url, digest_key="the key of the bench")))
            provider = TracerProvider()
            provider.add_span_processor(LoopGuardSpanProcessor(guards[0]))
            return provider

        found = side_by_side(tool_spans, {"guard": guarded, "guard_with_redis": backed})
        guards[0].shutdown()
    return found


def told() -> dict[str, float]:
    """A tool span with telemetry, into the SDK and into nothing, over the guard without any."""
    readers: list[MetricReader] = []

    def silent() -> TracerProvider:
        return watched(LoopGuard(Settings(telemetry_metrics=False, telemetry_events=False)))

    def telling() -> TracerProvider:
        reader = PeriodicExportingMetricReader(Nowhere(), export_interval_millis=1_000)
        readers.append(reader)
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(SimpleLogRecordProcessor(InMemoryLogRecordExporter()))
        meters = MeterProvider([reader], shutdown_on_exit=False)
        return watched(LoopGuard(meter_provider=meters, logger_provider=logs))

    providers = {"guard": silent, "without_sdk": guarded, "with_telemetry": telling}
    found = side_by_side(tool_spans, providers)
    for reader in readers:
        reader.shutdown()
    return found


def watched(guard: LoopGuard) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    return provider


def side_by_side(
    work: Callable[[TracerProvider], Callable[[int], None]],
    providers: dict[str, Callable[[], TracerProvider]],
) -> dict[str, float]:
    """Median microseconds per span of each provider, and the median ratio to the first."""
    runs = {name: work(make()) for name, make in providers.items()}
    for run in runs.values():
        run(SPANS)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            gc.collect()
            began = time.perf_counter()
            run(SPANS)
            times[name].append((time.perf_counter() - began) / SPANS * 1e6)
    first = next(iter(times))
    result = {f"{name}_us": round(statistics.median(taken), 2) for name, taken in times.items()}
    for name in list(times)[1:]:
        ratios = [mine / base for mine, base in zip(times[name], times[first], strict=True)]
        result[f"{name}_over_{first}"] = round(statistics.median(ratios), 3)
    return result


def call(number: int, session_bytes: str) -> Step:
    start = 1_700_000_000_000_000_000 + number * 1_000_000_000
    return Step(
        Kind.TOOL, "search", start=start, end=start + 1_000_000, trace_id=1, span_id=number + 1,
        args=f'{{"query": "{session_bytes} {number}"}}', outcome=f"{RESULT} {number}",
    )  # fmt: skip


def step_cost() -> dict[str, float]:
    """Microseconds per step after 100, 1,000 and 10,000 steps of one session, and the ratio."""
    points, width = (100, 1_000, 10_000), 100
    found: dict[int, list[float]] = {point: [] for point in points}
    for _ in range(7):
        guard = LoopGuard(Settings(), clock="replay")
        done = 0
        for point in points:
            for number in range(done, point):
                guard.observe(call(number, "q"), "one")
            steps = [call(number, "q") for number in range(point, point + width)]
            gc.collect()
            began = time.perf_counter()
            for step in steps:
                guard.observe(step, "one")
            found[point].append((time.perf_counter() - began) / width * 1e6)
            done = point + width
    medians = {point: statistics.median(taken) for point, taken in found.items()}
    result = {f"at_{point}_us": round(medians[point], 2) for point in points}
    result["at_10000_over_at_100"] = round(medians[10_000] / medians[100], 3)
    return result


def memory() -> dict[str, float]:
    """Traced bytes of one session at 1,000 and 10,000 steps, and of 10,000 sessions left idle."""
    tracemalloc.start()
    guard = LoopGuard(Settings(), clock="replay")
    base = tracemalloc.get_traced_memory()[0]
    sizes: list[int] = []
    for number in range(10_000):
        guard.observe(call(number, "q"), "one")
        if number + 1 in (1_000, 10_000):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0] - base)
    guard = LoopGuard(Settings(), clock="replay")
    gc.collect()
    base = tracemalloc.get_traced_memory()[0]
    for number in range(10_000):
        for turn in range(5):
            guard.observe(call(turn, "q"), f"session-{number}")
    gc.collect()
    idle = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    return {
        "session_at_1000_steps_kb": round(sizes[0] / 1024, 1),
        "session_at_10000_steps_kb": round(sizes[1] / 1024, 1),
        "idle_sessions_10000_mb": round(idle / 2**20, 1),
        "idle_session_kb": round(idle / 10_000 / 1024, 2),
    }


def many_sessions(sessions: int = 10_000, steps: int = 40) -> dict[str, float]:
    """CPU that a hook takes while a process fills with sessions: p50, p99.9, the worst of all.

    One session after the other, so that none comes back. The worst is where the interpreter looks
    through all objects of the process for garbage; how long that takes alone stands beside it.
    """
    processor = LoopGuardSpanProcessor(telemetry_metrics=False, telemetry_events=False)
    scope, resource = InstrumentationScope("bench.agent"), Resource.get_empty()
    full: list[float] = []
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if info["generation"] == 2:
            if phase == "start":
                began = time.thread_time()
            else:
                full.append(time.thread_time() - began)

    gc.collect()
    before = len(gc.get_objects())
    gc.callbacks.append(collected)
    hooks = array("q")
    for session in range(sessions):
        for number in range(steps):
            ended = time.time_ns()
            span = ReadableSpan(
                "execute_tool search", resource=resource, instrumentation_scope=scope,
                context=SpanContext(session + 1, session * steps + number + 1, is_remote=False),
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "search",
                    "gen_ai.conversation.id": f"many-{session}",
                    "gen_ai.tool.call.arguments": f'{{"query": "city {number}", "n": 5}}',
                    "gen_ai.tool.call.result": f"{RESULT} {number}",
                },
                start_time=ended - 1_000_000, end_time=ended,
            )  # fmt: skip
            started = time.thread_time_ns()
            processor.on_end(span)
            hooks.append(time.thread_time_ns() - started)
    gc.callbacks.remove(collected)
    objects = (len(gc.get_objects()) - before) / sessions
    ordered = sorted(hooks)
    processor.shutdown()
    return {
        "hook_p50_us": round(ordered[len(ordered) // 2] / 1e3, 1),
        "hook_p999_us": round(ordered[len(ordered) * 999 // 1000] / 1e3, 1),
        "hook_worst_ms": round(ordered[-1] / 1e6, 1),
        "full_collections": len(full),
        "full_collection_worst_ms": round(max(full, default=0) * 1e3, 1),
        "objects_per_session": round(objects, 1),
    }


def check_cost() -> dict[str, float]:
    """Nanoseconds of `control.check()` where nothing is wrong, inside a span of a session."""
    provider = guarded()
    tool_spans(provider)(3)
    tracer = provider.get_tracer("bench.agent")
    with tracer.start_as_current_span(
        "invoke_agent bench", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        taken: list[float] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(5_000):
                control.check()
            taken.append((time.perf_counter() - began) / 5_000 * 1e9)
    return {"check_ns": round(statistics.median(taken))}


def admit_cost() -> dict[str, float]:
    """Microseconds of `execution.admit()` for a tool with a profile, and of a batch of ten."""
    guard = LoopGuard(Settings())
    for number in range(100):
        guard.observe(call(number, "q"), "one")
    execution.admit("search", {"query": "q"})
    time.sleep(1.2)  # the thread that measures the machine has begun
    result: dict[str, float] = {}
    batch = [("search", {"query": f"q {number}"}) for number in range(10)]
    asked: dict[str, Callable[[], object]] = {
        "admit": lambda: execution.admit("search", {"query": "q"}, user="ada", session="one"),
        "admit_batch": lambda: execution.admit_batch(batch, user="ada", session="one"),
    }
    for name, ask in asked.items():
        taken: list[int] = []
        for _ in range(20_000 if name == "admit" else 2_000):
            began = time.perf_counter_ns()
            ask()
            taken.append(time.perf_counter_ns() - began)
        taken.sort()
        result[f"{name}_p50_us"] = round(taken[len(taken) // 2] / 1e3, 1)
        result[f"{name}_p99_us"] = round(taken[len(taken) * 99 // 100] / 1e3, 1)
    return result


def replay() -> dict[str, float]:
    """Spans and steps per second through the code of `otel-loopguard replay`."""
    if not TRAIL.exists():
        return {}
    steps = spans = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    guard = LoopGuard(Settings(), clock="replay", on_step=count)
    feed = SpanReplay(guard, Reader().read)
    began = time.perf_counter()
    for span in Recording(str(TRAIL), lambda *_: None):
        feed.add(span)  # type: ignore[arg-type]
        spans += 1
    feed.finish()
    guard.shutdown()
    taken = time.perf_counter() - began
    return {
        "spans": spans, "steps": steps, "seconds": round(taken, 2),
        "spans_per_s": round(spans / taken), "steps_per_s": round(steps / taken),
    }  # fmt: skip


def rows() -> Iterator[tuple[str, dict[str, float]]]:
    yield (
        "tool span with arguments and result",
        side_by_side(
            tool_spans, {"sdk": bare, "guard": guarded, "batch": batched, "batch_and_guard": both}
        ),
    )
    yield (
        "span of no interest, known scope",
        side_by_side(
            other_spans("opentelemetry.instrumentation.requests"), {"sdk": bare, "guard": guarded}
        ),
    )
    yield (
        "span of no interest, unknown scope",
        side_by_side(other_spans("my.application"), {"sdk": bare, "guard": guarded}),
    )
    yield "tool span, journal and profiles in Redis", stored()
    yield "tool span, metrics and log events", told()
    yield "one step, by length of the session", step_cost()
    yield "memory", memory()
    yield MANY, many_sessions()
    yield "control.check()", check_cost()
    yield "execution.admit()", admit_cost()
    yield "replay of trail.otlp.jsonl.gz", replay()


def main() -> None:
    machine = {
        "python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.system(),
        "opentelemetry-sdk": version("opentelemetry-sdk"), "when": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    results: dict[str, object] = {"machine": machine}
    for name, figures in rows():
        results[name] = figures
        print(name)
        for figure, value in figures.items():
            print(f"    {figure:<34}{value:>12,}")
        sys.stdout.flush()
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
