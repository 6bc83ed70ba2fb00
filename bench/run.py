"""Speed, size and counts of the guard, side by side with the SDK alone, in one run.

`make bench` prints two tables and writes `bench/results.json`: what is aimed at (`aims.py`), and
every figure. Times are medians over repetitions that take turns, so that a machine that slows down
slows down both sides; what counts is the ratio, and on a busy machine the counts (`counts.py`).
"""

from __future__ import annotations

import gc
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
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from bench import aims
from bench.agent import hooks, paid
from bench.counts import counts
from bench.house import healthy_span
from bench.peers import peers
from bench.spans import RESULT, SETS, SHARED, TOOL, bare, batched, both, guarded, tool_spans
from bench.timing import ROUNDS, beside_bare, side_by_side
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, execution
from otel_loopguard.core import Kind, Step

HERE = Path(__file__).resolve().parent
PROGRAM = Path(sys.executable).parent / "otel-loopguard"
STARTS = 7


class Nowhere(MetricExporter):
    def export(self, *_: object, **__: object) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, *_: object, **__: object) -> None:
        pass


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
    """Traced bytes of a session of 1,000 and of 10,000 steps, and of 10,000 sessions left idle.

    A session has what is given back when it is forgotten: tables of the guard, which grow and
    shrink meanwhile, are not its own.
    """
    tracemalloc.start()
    guard = LoopGuard(Settings(), clock="replay")
    sizes: list[int] = []
    for steps in (1_000, 10_000):
        for number in range(steps):
            guard.observe(call(number, "q"), "one")
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
        guard.forget("one")
        gc.collect()
        sizes.append(used - tracemalloc.get_traced_memory()[0])
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
        "idle_session_kb": round(idle / 10_000 / 1024, 2),
    }


def _alone(measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """A measurement in a process of its own: guards of others give back memory meanwhile."""
    program = f"import json; from bench.run import {measure.__name__} as m; print(json.dumps(m()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


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


MEASURED = """
import json, sys
from resource import RUSAGE_SELF, getrusage
{statement}
used = getrusage(RUSAGE_SELF)
own = [name for name in sys.modules if name.partition(".")[0] == "otel_loopguard"]
print(json.dumps([used.ru_utime + used.ru_stime, len(sys.modules), len(own)]))
"""
SDK = "from opentelemetry.sdk.trace import TracerProvider"
STATEMENTS = {
    "sdk": SDK,
    "import": f"{SDK}\nfrom otel_loopguard import LoopGuardSpanProcessor",
    "first_span": f"""{SDK}
from otel_loopguard import LoopGuardSpanProcessor
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
with provider.get_tracer("bench").start_as_current_span(
    "execute_tool search", attributes={{
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": "{{}}", "gen_ai.tool.call.result": "mild"}}): pass
""",
}


def imports() -> dict[str, float]:
    """CPU and modules of an import and of a first span, beyond the SDK's; `--help`."""
    taken: dict[str, list[list[float]]] = {name: [] for name in STATEMENTS}
    helped: list[float] = []
    for _ in range(STARTS):
        for name, statement in STATEMENTS.items():
            program = MEASURED.replace("{statement}", statement)
            done = subprocess.run(
                [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE
            )
            taken[name].append(json.loads(done.stdout))
        began = time.perf_counter()
        subprocess.run([PROGRAM, "--help"], check=True, stdout=subprocess.DEVNULL)
        helped.append(time.perf_counter() - began)
    sdk, own, first = (
        [statistics.median(column) for column in zip(*taken[name], strict=True)]
        for name in STATEMENTS
    )
    return {
        "sdk_cpu_s": round(sdk[0], 3),
        "beyond_sdk_cpu_s": round(own[0] - sdk[0], 3),
        "own_modules": round(own[2]),
        "modules_beyond_sdk": round(own[1] - sdk[1]),
        "first_span_cpu_s": round(first[0] - sdk[0], 3),
        "first_span_own_modules": round(first[2]),
        "help_s": round(statistics.median(helped), 3),
    }


REPLAYED = """
import os, sys, time
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from otel_loopguard.cli.replay import print_replay
from otel_loopguard.cli.output import Format
from otel_loopguard.settings import Settings
def cpu(): return sum(sum(getrusage(who)[:2]) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
began, used = time.perf_counter(), cpu()
print_replay(sys.argv[1:], Format.JSON, Settings(), tree=False)
print(time.perf_counter() - began, cpu() - used, file=sys.stderr)
"""


def replay(files: list[str]) -> dict[str, float]:
    """Steps a second through `otel-loopguard replay`."""
    paths = [str(SHARED / "traces" / name) for name in files]
    if not all(Path(path).exists() for path in paths):
        return {}
    done = subprocess.run(
        [sys.executable, "-c", REPLAYED, *paths], check=True, capture_output=True,
    )  # fmt: skip
    steps = sum(json.loads(line)["steps"] for line in done.stdout.splitlines())
    seconds, used = map(float, done.stderr.split()[-2:])
    return {
        "steps": steps,
        "steps_per_s": round(steps / seconds),
        "steps_per_cpu_s": round(steps / used),
    }


TIMED: dict[str, Callable[[], dict[str, float]]] = {
    aims.MANY: many_sessions,
    aims.IMPORT: imports,
    aims.ADMIT: admit_cost,
    aims.REPLAY: lambda: replay(["trail.otlp.jsonl.gz"]),
    "replay of labelled runs": lambda: replay(
        [f"{name}.jsonl.gz" for name in ("miniswe", "taubench", "trail", "codetracer-claude")]
    ),
}


def spans() -> Iterator[tuple[str, dict[str, float]]]:
    """Every set of spans: times of the SDK and of what stands beside it, and what was counted."""
    counted, rivals = counts(), peers()
    for name, work in SETS.items():
        others = {"batch": batched, "batch_and_guard": both} if name == TOOL else {}
        figures = side_by_side(work, {"sdk": bare, "guard": guarded, **others})
        figures |= counted[name] | paid(work)
        if name in (TOOL, "model span"):
            figures |= hooks(work)
        if name == TOOL:
            figures["modules"], figures["calls"] = healthy_span()
        yield name, figures
        if name in rivals:
            yield f"{name}: peers", rivals[name]


def rows() -> Iterator[tuple[str, dict[str, float]]]:
    yield from spans()
    yield "tool span, journal and profiles in Redis", stored()
    yield "tool span, metrics and log events", told()
    yield "one step, by length of the session", step_cost()
    yield "memory", _alone(memory)
    yield "control.check()", check_cost()
    bare_span = tool_spans(bare())
    for name, measure in TIMED.items():
        yield name, beside_bare(measure, bare_span)


def main() -> None:
    machine = {
        "python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.system(),
        "opentelemetry-sdk": version("opentelemetry-sdk"), "when": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    found: dict[str, dict[str, float]] = {}
    for name, figures in rows():
        found[name] = figures
        print(name)
        for figure, value in figures.items():
            print(f"    {figure:<34}{value:>12,}")
        sys.stdout.flush()
    (HERE / "results.json").write_text(json.dumps({"machine": machine, **found}, indent=1) + "\n")
    print()
    for row in (aims.HEAD, *aims.rows(found)):
        columns = "".join(f"{each:>12}" for each in row[1:6])
        print(f"{row[0]:<52}{columns}  {row[6]}")


if __name__ == "__main__":
    main()
