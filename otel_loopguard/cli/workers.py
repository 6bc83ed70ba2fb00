"""Replay spread over processes, with the results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from otel_loopguard.cli.output import keep_faults
from otel_loopguard.replay import workers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WORTH: Final = 4_000
"""Steps from which on workers are started: about what starting them costs, a second or less."""
_BATCH: Final = 400
"""Steps that a worker is given at once."""


def spread(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    steps: Callable[[_Item], int],
    jobs: int,
) -> Iterator[tuple[_Item, _Result]]:
    """Yields each item with the result of `work`, in the order of the items.

    Little work, a single batch, and everything with one job are done in this process. `work` and
    the items are pickled; few items are held at once. `steps` estimates the cost of an item in
    steps; 0 jobs stand for one per processor.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from ((item, work(item)) for item in items)
        return
    batches = _batches(items, steps)
    first, remaining = list[list[_Item]](), _WORTH
    while remaining > 0 or len(first) < 2:
        batch = next(batches, None)
        if batch is None:
            yield from ((item, work(item)) for item in chain.from_iterable(first))
            return
        first.append(batch)
        remaining -= sum(map(steps, batch))
    sent = deque[list[_Item]]()

    def noted() -> Iterator[list[_Item]]:
        for batch in chain(first, batches):
            sent.append(batch)
            yield batch

    each = partial(_each, work)
    for results in workers.spread(each, noted(), jobs, keep_faults, ordered=True):
        yield from zip(sent.popleft(), results, strict=True)


def _batches(items: Iterable[_Item], steps: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    batch, remaining = list[_Item](), _BATCH
    for item in items:
        batch.append(item)
        remaining -= steps(item)
        if remaining <= 0:
            yield batch
            batch, remaining = [], _BATCH
    if batch:
        yield batch


def _each(work: Callable[[_Item], _Result], batch: list[_Item]) -> list[_Result]:
    return [work(item) for item in batch]
