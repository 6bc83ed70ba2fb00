"""Worker processes that end with their parent, even if it is killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD: Final = 4
"""Items per worker that are sent before the results of earlier ones are taken, where ordered."""


def spread(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    jobs: int,
    prepare: Callable[[], object] | None = None,
    *,
    ordered: bool = False,
) -> Iterator[_Result]:
    """Yields the result of `work` for each item; 0 jobs: one per processor.

    The workers of a `ProcessPoolExecutor` outlive a parent that is killed; these read from a pipe
    that only the parent writes to, and end with it.

    Args:
        work: Called with each item, in a worker. It is pickled, as are items and results.
        items: Taken as workers become free.
        jobs: Number of workers; with 1 all is done in this process.
        prepare: Called first in each worker.
        ordered: Whether results come in the order of the items, else as they are done.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from map(work, items)
        return
    pending = enumerate(items)
    idle: list[_Worker[_Item, _Result]] = []
    busy: dict[Connection, _Worker[_Item, _Result]] = {}
    done: dict[int, _Result] = {}
    sent = taken = 0
    try:
        while True:
            while len(busy) < jobs and not (ordered and sent - taken >= _AHEAD * jobs):
                found = next(pending, None)
                if found is None:
                    break
                worker = idle.pop() if idle else _Worker(work, prepare)
                busy[worker.pipe] = worker
                worker.send(*found)
                sent += 1
            if not (busy or done):
                break
            # After sending, so that no worker waits for the caller.
            while taken in done:
                yield done.pop(taken)
                taken += 1
            for pipe in cast("list[Connection]", wait(list(busy))) if busy else ():
                number, result = busy[pipe].result()
                idle.append(busy.pop(pipe))
                done[number if ordered else taken + len(done)] = result
        while idle:
            idle.pop().end()
    finally:
        for worker in (*busy.values(), *idle):
            worker.end(at_once=True)


class _Worker(Generic[_Item, _Result]):
    """A process and the pipe to it."""

    def __init__(
        self, work: Callable[[_Item], _Result], prepare: Callable[[], object] | None
    ) -> None:
        # Started anew and not forked: a fork would take over threads and locks.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, work, prepare), daemon=True
        )
        self._process.start()
        theirs.close()
        self._number = 0

    def send(self, number: int, item: _Item) -> None:
        """Sends it the next item."""
        self._number = number
        try:
            self.pipe.send(item)
        except OSError as error:
            raise self._ended() from error

    def result(self) -> tuple[int, _Result]:
        """Returns the number of its item, and the result."""
        try:
            result: object = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if isinstance(result, BaseException):
            raise result
        return self._number, cast("_Result", result)

    def _ended(self) -> LoopGuardError:
        self._process.join(5)
        code = self._process.exitcode
        return LoopGuardError(f"a worker process ended before its time ({code}); try fewer --jobs")

    def end(self, *, at_once: bool = False) -> None:
        """Waits for it to end, or terminates it."""
        self.pipe.close()
        if at_once:
            self._process.terminate()
        self._process.join()


def _serve(
    pipe: Connection, work: Callable[[_Item], _Result], prepare: Callable[[], object] | None
) -> None:
    if prepare is not None:
        prepare()
    try:
        while True:
            item = cast("_Item", pipe.recv())
            try:
                result: object = work(item)
            except (LoopGuardError, OSError) as error:
                result = error
            except Exception as error:  # noqa: BLE001  # the parent raises it
                result = LoopGuardError(f"{type(error).__name__}: {error}")
            pipe.send(result)
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the parent is gone or has no more items
