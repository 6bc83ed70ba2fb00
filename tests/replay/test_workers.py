"""Work spread over processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Generator, Iterator
from typing import cast

import pytest

from otel_loopguard.errors import LoopGuardError
from otel_loopguard.replay.workers import spread

ITEMS = 40


def double(number: int) -> int:
    """Every seventh item takes longer than those after it."""
    time.sleep(0.05 if number % 7 == 0 else 0)
    return 2 * number


def fail(number: int) -> int:
    """The second item fails."""
    if number == 1:
        msg = f"no item {number}"
        raise KeyError(msg)
    return number


def end(number: int) -> int:
    """The process ends without a result."""
    os._exit(number)


def test_results_come_in_order() -> None:
    """Although items that were sent later are done earlier."""
    assert list(spread(double, range(ITEMS), 3, ordered=True)) == [*range(0, 2 * ITEMS, 2)]


def test_results_come_once_each() -> None:
    """Without an order, as they are done; also of no items at all."""
    assert sorted(spread(double, range(ITEMS), 3)) == [*range(0, 2 * ITEMS, 2)]
    assert list(spread(double, [], 3)) == []


def test_few_items_are_taken_ahead() -> None:
    """Where the order counts, results of later items do not pile up behind a slow one."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = spread(double, items(), 2, ordered=True)
    assert next(results) == 0
    assert len(taken) <= 10
    cast("Generator[int]", results).close()
    assert not multiprocessing.active_children()


def test_a_failure_is_raised_here() -> None:
    """With its type and text, and no process is left."""
    with pytest.raises(LoopGuardError, match="KeyError: 'no item 1'"):
        list(spread(fail, range(3), 2, ordered=True))
    assert not multiprocessing.active_children()


def test_a_process_that_ends_is_an_error() -> None:
    """With its exit code."""
    with pytest.raises(LoopGuardError, match=r"ended before its time \(7\)"):
        list(spread(end, [7], 2))
