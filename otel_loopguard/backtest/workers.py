"""Worker processes that end with their parent, also when it is killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def spread(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    jobs: int,
    prepare: Callable[[], object] | None = None,
) -> Iterator[_Result]:
    """Yields the result of `work` for each item, as it is done; 0 jobs: one per processor.

    `prepare` runs first in each worker. The workers of a `ProcessPoolExecutor` outlive a parent
    that is killed; these read from a pipe that only the parent writes to, and end with it.
    """
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        yield from map(work, items)
        return
    waiting = iter(items)
    workers: dict[Connection, _Worker[_Item, _Result]] = {}
    try:
        for item in waiting:
            worker = _Worker(work, prepare, item)
            workers[worker.pipe] = worker
            if len(workers) == jobs:
                break
        while workers:
            for pipe in cast("list[Connection]", wait(list(workers))):
                worker = workers[pipe]
                yield worker.result()
                item = next(waiting, None)
                if item is None:
                    workers.pop(pipe).end()
                else:
                    pipe.send(item)
    finally:
        for worker in workers.values():
            worker.end(at_once=True)


class _Worker(Generic[_Item, _Result]):
    """A process and the pipe to it."""

    def __init__(
        self,
        work: Callable[[_Item], _Result],
        prepare: Callable[[], object] | None,
        item: _Item,
    ) -> None:
        # Started anew and not forked: a fork would take over threads and locks.
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_serve, args=(theirs, work, prepare), daemon=True
        )
        self._process.start()
        theirs.close()
        self.pipe.send(item)

    def result(self) -> _Result:
        """Returns the result for its item."""
        try:
            made: object = self.pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            code = self._process.exitcode
            msg = f"a worker process ended before its time ({code}); try fewer --jobs"
            raise LoopGuardError(msg) from error
        if isinstance(made, BaseException):
            raise made
        return cast("_Result", made)

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
                made: object = work(item)
            except Exception as error:  # noqa: BLE001  # the parent raises it
                made = LoopGuardError(f"{type(error).__name__}: {error}")
            pipe.send(made)
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the parent is gone or has no more items
