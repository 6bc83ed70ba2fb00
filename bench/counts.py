"""What a span costs, counted and not timed: nearly the same on a busy machine.

Instructions are counted by callgrind where valgrind is installed, with the misses of a simulated
cache, and everywhere the bytecodes that the interpreter executes. All run so many spans and twice
as many and take the difference, in a process of their own with PYTHONHASHSEED=0, with the SDK alone
and with the guard. Counted is the thread that makes the spans; for callgrind the garbage
collections in it, too. A tool span varies by some 5 %, as calls that take longer than their tool
usually does cost more.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

WARM_UP, SPANS = 60, 100
PROVIDERS = ("sdk", "guard")
# Two levels of 32 and 512 kB, as many cloud machines have for each core.
CACHES = ("--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64")
EVENTS = {"instructions": {"Ir"}, "cache_misses": {"ILmr", "DLmr", "DLmw"}}
"""What callgrind counts for each figure."""

Counts = dict[str, dict[str, float]]
"""Per set of spans, per figure: how many for one span."""


def counts() -> Counts:
    """Bytecodes, and instructions where valgrind is installed."""
    found = _child([sys.executable], "bytecodes")
    if shutil.which("valgrind"):
        with tempfile.TemporaryDirectory(prefix="loopguard-bench-") as folder:
            # Only what runs below `sys.call_tracing` counts, which nothing else calls.
            valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no"]
            valgrind += ["--toggle-collect=_PyEval_CallTracing", "--dump-after=_PyEval_CallTracing"]
            out = Path(folder, "out")
            valgrind += [*CACHES, f"--callgrind-out-file={out}"]
            order = _child([*valgrind, sys.executable], "in_turn")
            for place, (name, provider) in enumerate(order):
                first, second = (_totals(Path(f"{out}.{2 * place + each}")) for each in (1, 2))
                for kind in EVENTS:
                    each_span = round((second[kind] - first[kind]) / SPANS)
                    found[name][f"{provider}_{kind}"] = each_span
    for figures in found.values():
        for kind in ("bytecodes", *EVENTS):
            if f"sdk_{kind}" in figures:
                beyond = figures[f"guard_{kind}"] - figures[f"sdk_{kind}"]
                figures[f"{kind}_beyond_sdk"] = beyond
    return found


def _child(command: list[str], task: str) -> Any:
    """What a task of this module, run in a child, prints as JSON."""
    done = subprocess.run(
        [*command, "-m", "bench.counts", task], check=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    return json.loads(done.stdout)


def _totals(dump: Path) -> dict[str, int]:
    lines = dump.read_text(encoding="utf-8").splitlines()
    events, totals = (
        next(line for line in lines if line.startswith(f"{name}:")).split()[1:]
        for name in ("events", "totals")
    )
    counted = [(name, int(total)) for name, total in zip(events, totals, strict=True)]
    return {
        kind: sum(total for name, total in counted if name in names)
        for kind, names in EVENTS.items()
    }


def _each(count: Callable[[Callable[[int], int], int], int]) -> Counts:
    from bench.spans import SETS, bare, guarded  # noqa: PLC0415  # only the children need it

    found: Counts = {}
    for name, work in SETS.items():
        found[name] = {}
        for provider, make in zip(PROVIDERS, (bare, guarded), strict=True):
            made = make()
            run = judged(work(made), made)
            run(WARM_UP)
            gc.collect()
            one, two = count(run, SPANS), count(run, 2 * SPANS)
            found[name][f"{provider}_bytecodes"] = round((two - one) / SPANS)
            made.shutdown()
    return found


def judged(run: Callable[[int], int], provider: Any) -> Callable[[int], int]:
    """Makes the spans and has all of them judged, on this thread: no timer comes by."""
    for processor in provider._active_span_processor._span_processors:  # noqa: SLF001
        processor._timer.idle = False  # noqa: SLF001

    def whole(spans: int) -> int:
        made = run(spans)
        provider.force_flush()
        return made

    return whole


def bytecodes() -> Counts:
    """Executed bytecodes per span, as the interpreter's trace function is told of them."""
    seen = 0

    def local(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        seen += event == "opcode"
        return local

    def entered(frame: FrameType, _event: str, _argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    def count(run: Callable[[int], int], spans: int) -> int:
        nonlocal seen
        seen = 0
        sys.settrace(entered)
        try:
            made = run(spans)
        finally:
            sys.settrace(None)
        return seen * spans // made

    return _each(count)


def in_turn() -> list[tuple[str, str]]:
    """Runs every set where callgrind looks; the sets and providers in the order of its dumps."""

    def count(run: Callable[[int], int], spans: int) -> int:
        sys.call_tracing(run, (spans,))
        return 0

    return [(name, provider) for name in _each(count) for provider in PROVIDERS]


if __name__ == "__main__":
    print(json.dumps({"bytecodes": bytecodes, "in_turn": in_turn}[sys.argv[1]]()))
