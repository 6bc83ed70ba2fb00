"""Worker processes that end with their parent, even if it is killed."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Final, TypeVar

from otel_loopguard.errors import LoopGuardError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Enough that no worker waits while the caller handles a result, few enough that items and results
# of one slow batch do not pile up.
_BATCHES_AHEAD: Final = 4
# What starting workers costs, in steps that one process judges meanwhile: a second or less.
_STEPS_WORTH_WORKERS: Final = 4_000
# A batch of a tenth of that: sending it costs little beside it, and all workers end about together.
_STEPS_OF_BATCH: Final = 400

COLLECTED: Final = (50_000, 20, 20)
"""Thresholds of the garbage collector while runs are replayed. Sessions live for long and are in
few circles: with Python's own (700) 3 to 5 % of the time goes into looking for them."""


def spread(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    jobs: int,
    prepare: Callable[[], object] | None = None,
    steps: Callable[[_Item], int] | None = None,
) -> Iterator[_Result]:
    """Yields the result of `work` for each item, in their order.

    Args:
        work: Called with each item, in a worker. It is pickled, as are items and results.
        items: Taken as workers become free.
        jobs: Number of workers; 0: one per processor. With 1 all is done in this process.
        prepare: Called first in each worker.
        steps: Estimates the steps of an item. With it, items are sent in batches, and little work
            is done in this process; without it, each item is worth a worker.

    Raises:
        LoopGuardError: The work failed, or a worker was killed.
    """
    jobs = jobs or os.cpu_count() or 1
    batches = _batches(items, steps)
    first: list[list[_Item]] = []
    if steps is not None and jobs > 1:
        missing = _STEPS_WORTH_WORKERS
        while jobs > 1 and (missing > 0 or len(first) < 2):
            batch = next(batches, None)
            if batch is None:
                jobs = 1
                break
            first.append(batch)
            missing -= sum(map(steps, batch))
    batches = chain(first, batches)
    if jobs == 1:
        yield from map(work, chain.from_iterable(batches))
        return
    context = get_context("spawn")  # a fork would take over threads and locks
    watched, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _begin, (watched, prepare))
    sent: deque[Future[list[_Result]]] = deque()
    try:
        for batch in batches:
            sent.append(pool.submit(_done, work, batch))
            if len(sent) >= _BATCHES_AHEAD * jobs:
                yield from sent.popleft().result()
        while sent:
            yield from sent.popleft().result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise LoopGuardError("a worker process ended before its time; try fewer --jobs") from error
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)
        watched.close()


def _batches(items: Iterable[_Item], steps: Callable[[_Item], int] | None) -> Iterator[list[_Item]]:
    batch, missing = list[_Item](), _STEPS_OF_BATCH
    for item in items:
        batch.append(item)
        missing -= _STEPS_OF_BATCH if steps is None else steps(item)
        if missing <= 0:
            yield batch
            batch, missing = [], _STEPS_OF_BATCH
    if batch:
        yield batch


def _begin(watched: Connection, prepare: Callable[[], object] | None) -> None:
    # Ctrl-C reaches the whole group; the parent hears it, and closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*COLLECTED)
    Thread(target=_end_with, args=(watched,), daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with(watched: Connection) -> None:
    """Ends this process, whatever it is at, once the parent closes its end of a pipe or is gone."""
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(1)


def _done(work: Callable[[_Item], _Result], batch: list[_Item]) -> list[_Result]:
    try:
        return [work(item) for item in batch]
    except (LoopGuardError, OSError):
        raise
    except Exception as error:
        raise LoopGuardError(f"{type(error).__name__}: {error}") from error
