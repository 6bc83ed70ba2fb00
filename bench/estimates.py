"""How long it takes to look an estimate up, and to learn a finished call.

`python bench/estimates.py` prints microseconds. `again` asks twice about one size between two
records, `first` once after every record, which is the slowest that a lookup can be.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.execution.profiler import Profiler

ROUNDS = 20_000
START = 1_700_000_000_000_000_000


def spent(work: Callable[[], object]) -> float:
    """Microseconds of one call."""
    before = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - before) / 1e3


def main() -> None:
    chance = random.Random(1)
    profiler = Profiler(Settings())
    found: dict[str, list[float]] = {"finished": [], "first": [], "again": [], "limit": []}
    for number in range(ROUNDS):
        ms = chance.lognormvariate(6, 1)
        start = START + number * 1_000_000_000
        args = {"query": "x" * chance.randint(5, 200), "page": number}
        step = Step(Kind.TOOL, "search", start=start, end=start + round(ms * 1e6), args=args)
        found["finished"].append(spent(lambda step=step: profiler.finished(step)))
        found["first"].append(spent(lambda args=args: profiler.estimate("search", args)))
        found["again"].append(spent(lambda args=args: profiler.estimate("search", args)))
        found["limit"].append(spent(lambda args=args: profiler.limit_for("search", args)))
    for name, times in found.items():
        times.sort()
        print(f"{name:9} p50 {times[ROUNDS // 2]:5.1f} us  p99 {times[ROUNDS * 99 // 100]:5.1f} us")


if __name__ == "__main__":
    main()
