"""Bounds on memory: `make bench` runs them, alone on a machine that does nothing else."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from typing import get_args

from otel_loopguard import Action, LoopGuard, Settings
from otel_loopguard.core import Decision
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.progress import Progress
from otel_loopguard.core.report import Topic
from otel_loopguard.sessions.stats import SessionStats
from tests.calls import Run, call
from tests.hostile.test_memory import span_of


def test_a_full_record_stays_small() -> None:
    """Everything new at every step, and every entry as long as it may be: 64 KB at most."""
    fill(SessionStats(Settings()))  # what is made once for all records is made by now
    gc.collect()
    tracemalloc.start()
    record = SessionStats(Settings())
    fill(record)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert record.report("s", Progress(), Action.ALLOW, ()).loops_detected == 2000
    assert used < 64 * 1024


def fill(record: SessionStats) -> None:
    for number in range(2000):
        step = call(f"tool{number}" * 9, {"path": f"/a/path/{number}" * 9}, "ok", at=number)
        record.step(step)
        record.wrote(step)
        for topic in get_args(Topic):
            record.memory.note(topic, f"{number} " + "x" * 300)
        record.decided(decision(number), step, loop=True)


def decision(number: int) -> Decision:
    return Decision(
        id=f"{number:016x}", session="s", action=Action.DENY, detector=f"detector{number}",
        reason="r", severity=Severity.WARNING, confidence=0.9, message=f"{number}" * 60,
        loop=f"{number:016x}", count=3, threshold=3, period=2, step=number, time=0,
    )  # fmt: skip


def test_nothing_of_them_is_kept() -> None:
    """After twenty different answers of 2 MB a session has not grown by a hundredth of one."""
    run = Run()
    run.calls(*(call("dump", {"n": n}, f"{n}" * 2_000_000) for n in range(3)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20):
        run.calls(call("dump", {"n": number + 9}, f"{number % 10}" * 2_000_000))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 64_000


def test_long_names_are_not_kept() -> None:
    """Span names and tools of 100 kB, all different, leave no megabytes behind."""
    guard = LoopGuard(Settings(), clock="replay")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(600):
            name = f"{number} " + "x" * 100_000
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            span = span_of(number, name=f"execute_tool {name}", attributes=attributes, trace_id=1)
            guard.on_start(span)
            guard.on_end(span)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # `Once` remembers the newest 256 steps with their names; each tool has a profile of 4 kB.
    assert kept < 256 * 110_000 + 600 * 4_000


MEMORY = """
import resource, sys
from otel_loopguard.replay import Recording, Run, SpanReplay
class Feed:
    spans = 0
    def on_start(self, span): pass
    def on_end(self, span, *, step): self.spans += 1
    def tick(self, now): pass
    def bind(self, trace_id, session): pass
feed = Feed()
replay = SpanReplay(feed, lambda span: None)
replay.max_chars = 8_000_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for span in Recording("-", print): replay.add(span)
replay.finish()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(feed.spans, (after - before) // 1024)
"""


def test_memory_does_not_grow_with_the_file() -> None:
    """200 MB of spans go through reading and replay within 96 MB."""
    spans = 12_000
    text = "x" * 16_000
    with subprocess.Popen(
        [sys.executable, "-c", MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        for index in range(spans):
            start = 1_700_000_000_000_000_000 + index * 1_000_000
            span = {
                "traceId": f"{index // 10 + 1:032x}",
                "spanId": f"{index + 1:016x}",
                "name": "s",
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + 900_000),
                "attributes": [{"key": "output.value", "value": {"stringValue": text}}],
            }
            line = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
            process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.close()
        closed, megabytes = map(int, process.stdout.read().split())
    assert closed == spans
    assert megabytes < 96
