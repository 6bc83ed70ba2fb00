"""Providers or detectors side by side: they take turns, so that a slow moment slows all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from bench.spans import Run

ROUNDS, SPANS = 15, 2_000


def side_by_side(
    work: Callable[[TracerProvider], Run], providers: Mapping[str, Callable[[], TracerProvider]]
) -> dict[str, float]:
    """Median microseconds per span of each provider, and the median ratio to the first."""
    return take_turns({name: work(make()) for name, make in providers.items()})


def take_turns(runs: Mapping[str, Run]) -> dict[str, float]:
    for run in runs.values():
        run(SPANS)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            gc.collect()
            began = time.perf_counter()
            made = run(SPANS)
            times[name].append((time.perf_counter() - began) / made * 1e6)
    first = next(iter(times))
    result = {f"{name}_us": round(statistics.median(taken), 2) for name, taken in times.items()}
    for name in list(times)[1:]:
        ratios = [mine / base for mine, base in zip(times[name], times[first], strict=True)]
        result[f"{name}_over_{first}"] = round(statistics.median(ratios), 3)
    return result


def beside_bare(measure: Callable[[], dict[str, float]], work: Run) -> dict[str, float]:
    """A measurement, and the CPU of a span of the SDK alone beside it: the least before or after.

    How fast a shared machine is may change within the hour; see `bench.aims`.
    """

    def bare_us() -> float:
        began = time.thread_time()
        made = work(SPANS)
        return (time.thread_time() - began) / made * 1e6

    before = statistics.median(bare_us() for _ in range(5))
    found = measure()
    after = statistics.median(bare_us() for _ in range(5))
    return found | {"bare_us": round(min(before, after), 2)} if found else found
