"""Work spread over processes."""

import multiprocessing
import os
import time
from collections.abc import Generator, Iterator
from typing import cast

import pytest

from otel_loopguard import LoopGuardError
from otel_loopguard.replay import workers
from otel_loopguard.replay.workers import spread

ITEMS = 40


def double(number: int) -> int:
    time.sleep(0.05 if number % 7 == 0 else 0)
    return 2 * number


def fail(number: int) -> int:
    if number == 1:
        msg = f"no item {number}"
        raise KeyError(msg)
    return number


def end(number: int) -> int:
    os._exit(number)


def test_results_come_in_order() -> None:
    """Although items that were sent later are done earlier."""
    assert list(spread(double, range(ITEMS), 3)) == [*range(0, 2 * ITEMS, 2)]


def test_no_items() -> None:
    """There are no results, and no process is left."""
    assert list(spread(double, [], 3)) == []
    assert not multiprocessing.active_children()


def test_little_work_needs_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done at once, in order, where the steps of items say that it is little."""
    monkeypatch.setattr(workers, "get_context", None)
    assert list(spread(str, range(300), 8, steps=lambda _: 5)) == [*map(str, range(300))]


def test_batches_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is much to do, items go to workers several at once."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    assert list(spread(double, range(ITEMS), 2, steps=lambda _: 90)) == [*range(0, 2 * ITEMS, 2)]


def test_few_items_are_taken_ahead() -> None:
    """Where the order counts, results of later items do not pile up behind a slow one."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = spread(double, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 10
    cast("Generator[int]", results).close()
    assert not multiprocessing.active_children()


def test_a_failure_is_raised_here() -> None:
    """With its type and text, and no process is left."""
    with pytest.raises(LoopGuardError, match="KeyError: 'no item 1'"):
        list(spread(fail, range(3), 2))
    assert not multiprocessing.active_children()


def test_a_process_that_ends_is_an_error() -> None:
    """It was killed, perhaps for want of memory."""
    with pytest.raises(LoopGuardError, match="ended before its time"):
        list(spread(end, [7], 2))
