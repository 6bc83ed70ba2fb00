"""Work spread over processes, with the results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing import get_context
from typing import Final, TypeVar

from otel_loopguard.cli.output import keep_faults
from otel_loopguard.errors import LoopGuardError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WORTH: Final = 4_000
"""Steps from which on workers are started: about what starting them costs, a second or less."""
_BATCH: Final = 400
"""Steps that a worker is given at once."""
_AHEAD: Final = 4
"""Batches per worker that run or wait for their results to be taken."""


def spread(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    steps: Callable[[_Item], int],
    jobs: int,
) -> Iterator[tuple[_Item, _Result]]:
    """Each item with the result of `work`, in the order of the items.

    Little work, a single batch, and everything with one job are done in this process. `work` and
    the items are pickled; few items are held at once. `steps` estimates the cost of an item in
    steps; 0 jobs stand for one per processor.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from ((item, work(item)) for item in items)
        return
    batches = _batches(items, steps)
    begun, left = list[list[_Item]](), _WORTH
    while left > 0 or len(begun) < 2:
        batch = next(batches, None)
        if batch is None:
            yield from ((item, work(item)) for item in chain.from_iterable(begun))
            return
        begun.append(batch)
        left -= sum(map(steps, batch))
    # Started anew and not forked: a fork would take over threads and locks.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=keep_faults)
    waiting = deque[tuple[list[_Item], Future[list[_Result]]]]()
    try:
        for batch in chain(begun, batches):
            waiting.append((batch, pool.submit(_each, work, batch)))
            if len(waiting) > _AHEAD * jobs:
                yield from _first(waiting)
        while waiting:
            yield from _first(waiting)
    except BrokenProcessPool as error:
        msg = f"the worker processes ended before their time ({error}); try --jobs 1"
        raise LoopGuardError(msg) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(items: Iterable[_Item], steps: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    batch, left = list[_Item](), _BATCH
    for item in items:
        batch.append(item)
        left -= steps(item)
        if left <= 0:
            yield batch
            batch, left = [], _BATCH
    if batch:
        yield batch


def _each(work: Callable[[_Item], _Result], batch: list[_Item]) -> list[_Result]:
    return [work(item) for item in batch]


def _first(
    waiting: deque[tuple[list[_Item], Future[list[_Result]]]],
) -> Iterator[tuple[_Item, _Result]]:
    batch, result = waiting.popleft()
    return zip(batch, result.result(), strict=True)
